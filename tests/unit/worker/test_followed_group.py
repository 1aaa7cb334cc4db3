"""What DDP starts by itself ends with the group, and nothing of DDP keeps the group's threads."""

import threading
import weakref
from collections.abc import Sequence

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from peerloom.worker.group.followed import FollowedGroup
from peerloom.worker.group.waits import Waits

DEADLINE_S = 30


class Broadcast(dist.Work):
    """Of two ranks, this one of which has what is broadcast; over when the test says so."""

    def __init__(self, tensors: Sequence[torch.Tensor]) -> None:
        super().__init__()
        self.tensors = list(tensors)
        self.future: torch.futures.Future[list[torch.Tensor]] = torch.futures.Future()

    def get_future(self) -> torch.futures.Future[list[torch.Tensor]]:  # type: ignore[override]  # torch: Any
        return self.future


class Peers(dist.ProcessGroup):
    """Two ranks; broadcasts end at once, but for those from `hangs_at` on (from 0), which never do."""

    def __init__(self, hangs_at: int) -> None:
        super().__init__(0, 2)
        self.hangs_at = hangs_at
        self.begun = 0
        self.hanging = threading.Event()

    def broadcast(self, tensors: list[torch.Tensor], _: object) -> dist.Work:  # type: ignore[override]
        work = Broadcast(tensors)
        self.begun += 1
        if self.begun > self.hangs_at:
            self.hanging.set()
        else:
            work.future.set_result(work.tensors)
        return work


def as_it_is(_: object, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
    unchanged: torch.futures.Future[torch.Tensor] = torch.futures.Future()
    unchanged.set_result(bucket.buffer())
    return unchanged


def steps_until_it_breaks(ddp: DistributedDataParallel, steps: int) -> list[str]:
    """The error of each step that had one, at most of so many steps."""
    try:
        for _ in range(steps):
            ddp(torch.ones(4, 3)).sum().backward()
    except RuntimeError as error:
        return [str(error)]
    return []


@pytest.mark.parametrize(
    "model",
    [
        pytest.param(nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2)), id="buffers"),
        pytest.param(nn.Linear(3, 2), id="the order of buckets"),
    ],
)
def test_a_break_ends_what_ddp_waits_for_by_itself(model: nn.Module) -> None:
    """Buffers before the first forward pass; without any, the order of buckets before the second."""
    peers, waits = Peers(hangs_at=0), Waits()
    group = FollowedGroup(peers, waits)
    ddp = DistributedDataParallel(model, process_group=group, init_sync=False)
    ddp.register_comm_hook(None, as_it_is)
    errors: list[str] = []
    training = threading.Thread(target=lambda: errors.extend(steps_until_it_breaks(ddp, 2)), daemon=True)
    training.start()
    assert peers.hanging.wait(DEADLINE_S)
    assert training.is_alive()
    waits.break_all("a peer fell silent")
    training.join(DEADLINE_S)
    assert not training.is_alive()
    assert ["a peer fell silent" in error for error in errors] == [True]
    assert not waits.quiet.is_set(), "the library still has it"


def test_nothing_is_in_the_way_of_a_group_that_works() -> None:
    peers, waits = Peers(hangs_at=1000), Waits()
    model = nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2))
    group = FollowedGroup(peers, waits)
    ddp = DistributedDataParallel(model, process_group=group, init_sync=False)
    ddp.register_comm_hook(None, as_it_is)
    assert steps_until_it_breaks(ddp, 3) == []
    assert peers.begun >= 3, "buffers before each"
    assert waits.quiet.is_set()


def test_ddp_that_outlives_the_generation_has_no_group() -> None:
    peers = Peers(hangs_at=1000)
    freed = weakref.ref(peers)
    group = FollowedGroup(peers, Waits())
    ddp = DistributedDataParallel(
        nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2)), process_group=group, init_sync=False
    )
    group.leave()
    del peers
    assert freed() is None
    assert "was left" in steps_until_it_breaks(ddp, 1)[0]
