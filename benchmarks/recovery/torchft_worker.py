"""The same work as one replica of a torchft job: FOLDER REPLICA COLLECTIVE_LIMIT_S.

Who asks its manager for rank and group before the forward pass waits for the quorum, which else is found
meanwhile. So a batch is shared by the group of the step before, which is known: in the one step after a
change the survivors leave out the dead worker's share, and all else is the same work.
"""

import sys
from datetime import timedelta
from typing import Any

import torch
from torch.distributed import TCPStore
from torch.nn import functional
from torchft import (  # type: ignore[import-not-found]  # only in the rivals' environment
    DistributedDataParallel,
    Manager,
    Optimizer,
    ProcessGroupGloo,
)

from benchmarks.recovery.small_model import BATCH, LEARNING_RATE, POOL, SEED, WORKERS, make_model, make_pool
from benchmarks.recovery.steps_file import StepsFile


def main(folder: str, replica: str, limit_s: str) -> None:
    torch.manual_seed(SEED)
    plain = make_model()
    inner = torch.optim.SGD(plain.parameters(), lr=LEARNING_RATE, momentum=0.9)

    def state_dict() -> dict[str, Any]:
        return {"model": plain.state_dict(), "optimiser": inner.state_dict()}

    def load_state_dict(state: dict[str, Any]) -> None:
        plain.load_state_dict(state["model"])
        inner.load_state_dict(state["optimiser"])

    store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    manager = Manager(
        pg=ProcessGroupGloo(timeout=timedelta(seconds=float(limit_s))),
        min_replica_size=2,
        load_state_dict=load_state_dict,
        state_dict=state_dict,
        rank=0,
        world_size=1,
        store_addr="127.0.0.1",
        store_port=store.port,
        hostname="127.0.0.1",
        replica_id=f"replica-{replica}-",
    )
    model, optimiser = DistributedDataParallel(manager, plain), Optimizer(manager, inner)
    inputs, targets = make_pool()
    steps, place, members = StepsFile(folder), int(replica), WORKERS
    while True:
        before = manager.current_step()
        optimiser.zero_grad()
        indices = torch.arange(before * BATCH + place, (before + 1) * BATCH, members) % POOL
        loss = functional.cross_entropy(model(inputs[indices]), targets[indices])
        loss.backward()  # type: ignore[no-untyped-call]  # torch leaves it untyped
        optimiser.step()
        if manager.current_step() > before:
            steps.commit(manager.current_step(), manager.num_participants())
        place, members = manager.participating_rank() or 0, max(1, manager.num_participants())


if __name__ == "__main__":
    main(*sys.argv[1:])
