"""A replica of torchft, which shares gradients each step, or by DiLoCo each so many batches:
`python -m … {"trial": {...}, "curve": FILE, "host": NUMBER, "address": OWN, "ways": "ddp" or "diloco"}`.

As in `recovery/torchft_worker.py` a batch is shared by the group of the step before, as who asks for rank and
group before the forward pass waits for the quorum. A replica by DiLoCo takes its host's part of each batch.
"""

import json
import os
import sys
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import torch
from torch.distributed import TCPStore
from torchft import (  # type: ignore[import-not-found]  # only in the rivals' environment
    DistributedDataParallel,
    Manager,
    Optimizer,
    ProcessGroupGloo,
)
from torchft.local_sgd import DiLoCo  # type: ignore[import-not-found]  # the same

from benchmarks.accuracy.curve_file import tell
from benchmarks.accuracy.trial import EPOCHS, HOSTS, OUTER_MOMENTUM, OUTER_RATE, PERIOD, Trial, Work

LIMIT_S = 3.0  # of a collective, which takes less than one here
QUORUM_LIMIT_S = 120.0


def main() -> None:
    asked = json.loads(sys.argv[1])
    tell(asked["curve"], "host", pid=os.getpid(), host=asked["host"])
    work = Work(Trial(**asked["trial"]))
    optimiser = work.optimiser(work.model.parameters())
    train = {"ddp": _each_step, "diloco": _each_period}[asked["way"]]
    train(work, optimiser, asked)


def _each_step(work: Work, inner: torch.optim.Optimizer, asked: dict[str, Any]) -> None:
    manager = _manager(asked, *_state(work, inner), is_async=True)
    model, optimiser = DistributedDataParallel(manager, work.model), Optimizer(manager, inner)
    place, members = asked["host"], HOSTS
    tell(asked["curve"], "began")
    while (before := manager.current_step()) < EPOCHS * work.steps:
        optimiser.zero_grad()
        work.passes(model, before, place, members)
        optimiser.step()
        place, members = manager.participating_rank() or 0, max(1, manager.num_participants())
        if manager.current_step() > before and place == 0:
            _tell_of_epoch(work, asked, before, manager.current_step())


def _each_period(work: Work, inner: torch.optim.Optimizer, asked: dict[str, Any]) -> None:
    manager = _manager(asked, *_state(work, inner), is_async=False)
    outer = torch.optim.SGD(work.model.parameters(), lr=OUTER_RATE, momentum=OUTER_MOMENTUM, nesterov=True)
    tell(asked["curve"], "began")
    with DiLoCo(manager, [work.model], inner, outer, sync_every=PERIOD, use_bucketization=True):
        while (before := manager.current_step() * PERIOD) < EPOCHS * work.steps:
            for batch in range(PERIOD):
                inner.zero_grad()
                work.passes(work.model, before + batch, asked["host"], HOSTS)
                inner.step()  # its hook exchanges after the last
            if manager.current_step() * PERIOD > before and manager.participating_rank() == 0:
                _tell_of_epoch(work, asked, before, manager.current_step() * PERIOD)


def _tell_of_epoch(work: Work, asked: dict[str, Any], before: int, steps: int) -> None:
    """Tells the accuracy where the steps from `before` to `steps` have ended an epoch."""
    if steps // work.steps > before // work.steps:
        tell(asked["curve"], "accuracy", epoch=steps / work.steps, accuracy=work.accuracy())


def _state(
    work: Work, inner: torch.optim.Optimizer
) -> tuple[Callable[..., None], Callable[[], dict[str, Any]]]:
    def load(state: dict[str, Any]) -> None:
        work.model.load_state_dict(state["model"])
        inner.load_state_dict(state["optimiser"])

    return load, lambda: {"model": work.model.state_dict(), "optimiser": inner.state_dict()}


def _manager(asked: dict[str, Any], load: Any, state: Any, is_async: bool) -> Any:
    address = asked["address"]
    store = TCPStore(address, 0, is_master=True, wait_for_workers=False)
    return Manager(
        pg=ProcessGroupGloo(timeout=timedelta(seconds=LIMIT_S)),
        min_replica_size=2,
        load_state_dict=load,
        state_dict=state,
        use_async_quorum=is_async,
        timeout=timedelta(seconds=LIMIT_S),
        quorum_timeout=timedelta(seconds=QUORUM_LIMIT_S),
        rank=0,
        world_size=1,
        store_addr=address,
        store_port=store.port,
        hostname=address,
        replica_id=f"host-{asked['host']}-",
    )


if __name__ == "__main__":
    main()
