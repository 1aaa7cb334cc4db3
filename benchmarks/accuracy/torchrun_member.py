"""A worker of plain DDP under torchrun: `python -m … {"trial": {...}, "curve": FILE, "host": NUMBER,
"checkpoint": FILE}`.

A worker that is killed has all workers begin anew, from the last checkpoint. The checkpoint lies on a disk
that all hosts share, which costs no network; Peerloom's and torchft's newcomers get their state over it.
"""

import json
import os
import sys
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from benchmarks.accuracy.curve_file import tell
from benchmarks.accuracy.trial import EPOCHS, Trial, Work

STEPS_OF_A_CHECKPOINT = 10


def main() -> None:
    asked = json.loads(sys.argv[1])
    tell(asked["curve"], "host", pid=os.getpid(), host=asked["host"])
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    work = Work(Trial(**asked["trial"]))
    model = DistributedDataParallel(work.model, gradient_as_bucket_view=True)
    optimiser = work.optimiser(model.parameters())
    checkpoint = Path(asked["checkpoint"])
    first = _load(checkpoint, work, optimiser)
    tell(asked["curve"], "began")
    for step in range(first, EPOCHS * work.steps):
        work.passes(model, step, rank, world)
        optimiser.step()
        optimiser.zero_grad()
        if rank == 0:
            _tell_and_save(asked["curve"], checkpoint, work, optimiser, step + 1)


def _load(checkpoint: Path, work: Work, optimiser: Any) -> int:
    """The step to go on from: 0 where there is no checkpoint yet."""
    if not checkpoint.exists():
        return 0
    kept = torch.load(checkpoint)
    work.model.load_state_dict(kept["model"])
    optimiser.load_state_dict(kept["optimiser"])
    step: int = kept["step"]
    return step


def _tell_and_save(curve: str, checkpoint: Path, work: Work, optimiser: Any, step: int) -> None:
    if step % work.steps == 0:
        tell(curve, "accuracy", epoch=step / work.steps, accuracy=work.accuracy())
    if step % STEPS_OF_A_CHECKPOINT == 0:
        part = checkpoint.with_suffix(".part")
        kept = {"model": work.model.state_dict(), "optimiser": optimiser.state_dict(), "step": step}
        torch.save(kept, part)
        part.rename(checkpoint)


if __name__ == "__main__":
    main()
