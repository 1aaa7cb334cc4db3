"""What one worker of shards sends while something hasn't come yet; the others are played."""

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from types import SimpleNamespace
from typing import cast

import torch
from torch import Tensor

from peerloom.worker.group.waits import TensorFuture
from peerloom.worker.plan.shard_stream import ShardStream
from peerloom.worker.plan.shard_units import ShardUnit
from peerloom.worker.plan.sharded_model import ShardedModel
from peerloom.worker.plan.stage_links import SHARD_GRADIENTS, SHARD_VALUES, WorkerLinks
from peerloom.worker.plan.tensor_places import TensorPlace
from peerloom.worker.sync import SyncTraffic

LIMIT_S = 20.0
RANK, WORKERS = 1, 3
NUMBERS = 8  # in a unit


class PlayedLinks:
    """Rank 1's ways: `sent` hears of what it sends on each; what it awaits doesn't come until all is over."""

    def __init__(self, sent: dict[int, threading.Event], over: threading.Event, channel: int = 0) -> None:
        self.rank, self.workers, self.traffic = RANK, WORKERS, SyncTraffic()
        self._sent, self._over, self._channel = sent, over, channel

    def beside(self, channel: int) -> "PlayedLinks":
        return PlayedLinks(self._sent, self._over, channel)

    def post(self, rank: int, content: Tensor) -> None:
        assert rank == RANK + 1
        self._sent[self._channel].set()

    def flush(self, at_most: int = 0) -> None:
        """All has left."""

    def begin_receive(self, rank: int, target: Tensor) -> TensorFuture:
        assert rank == RANK - 1
        return torch.futures.Future()

    def result(self, future: TensorFuture) -> Tensor:
        self._over.wait(LIMIT_S)
        raise TimeoutError


def unit(owner: int) -> ShardUnit:
    place = TensorPlace("weight", torch.Size([NUMBERS]), torch.float32, 0)
    return ShardUnit(owner, 0, 1, (place,), (place,), {"weight": ("weight",)})


def zeros(number: int) -> Tensor:
    """A unit's values, or its gradients."""
    return torch.zeros(4 * NUMBERS, dtype=torch.uint8)


@contextmanager
def working(
    owners: Sequence[int], ways: Sequence[int], work: Callable[[ShardStream], object]
) -> Iterator[list[threading.Event]]:
    """While a thread works with rank 1's stream of units of these owners: whether it sent on these ways."""
    sent, over = {way: threading.Event() for way in ways}, threading.Event()
    model = SimpleNamespace(units=[unit(owner) for owner in owners], packed=zeros, packed_gradients=zeros)
    links = cast(WorkerLinks, PlayedLinks(sent, over))

    def run() -> None:
        with suppress(TimeoutError):
            work(ShardStream(cast(ShardedModel, model), links, range(len(owners))))

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield list(sent.values())
    finally:
        over.set()
        thread.join(LIMIT_S)


def test_own_values_leave_though_those_of_the_owner_before_have_not_come() -> None:
    with working([0, 1], SHARD_VALUES, lambda stream: stream.visit()) as (even, odd):
        assert odd.wait(LIMIT_S)
        assert not even.is_set()


def test_gradients_leave_for_the_next_owner_though_own_ones_have_not_come() -> None:
    """Rank 1 ends the way of its own unit's gradients, and begins the one of rank 0's."""

    def give(stream: ShardStream) -> None:
        stream.give_gradients(0)
        stream.give_gradients(1)

    with working([1, 0], SHARD_GRADIENTS, give) as (even, odd):
        assert even.wait(LIMIT_S)
        assert not odd.is_set()
