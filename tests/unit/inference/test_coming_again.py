"""A thousand callers at once of one node that takes few: each comes again as told, and none is lost."""

import asyncio
from collections.abc import Coroutine
from typing import Any

import numpy as np
import pytest

from peerloom.errors import CancelledError, DeadlineError, ResourceExhaustedError
from peerloom.inference.client.coming_again import pause_s
from peerloom.inference.client.remote import RemoteRoute
from peerloom.inference.server.batching import admit
from peerloom.kit.tensors import message_of
from peerloom.testing.service_wiring import VirtualClock
from peerloom.testing.virtual_loop import VirtualLoop
from peerloom.v1.inference_pb2 import InferResponse

CALLERS, QUEUE, SAMPLE_S, LIMIT_S = 1000, 64, 0.01, 60.0
INPUTS = np.ones((1, 2), dtype=np.float32)


@pytest.mark.parametrize(
    ("hint_s", "refusals", "chance", "expected"),
    [
        (0.1, 1, 0.0, 0.1),
        (0.1, 1, 0.5, 0.15),
        (0.1, 3, 0.0, 0.4),
        (0.1, 9, 0.0, 2.0),
        (0.1, 9, 1.0, 4.0),
        (5.0, 9, 0.0, 5.0),  # never sooner than it was told
    ],
)
def test_the_pause_begins_with_the_hint_and_doubles_up_to_two_seconds(
    hint_s: float, refusals: int, chance: float, expected: float
) -> None:
    assert pause_s(hint_s, refusals, chance) == pytest.approx(expected)


def test_a_thousand_callers_of_one_busy_node_are_all_answered_and_ask_few_times_each() -> None:
    node = _BusyNode()

    async def all_callers() -> list[Any]:
        route = _route(node, loop)
        return await asyncio.gather(*(route.infer("d", INPUTS, LIMIT_S, hedge=False) for _ in range(CALLERS)))

    loop = VirtualLoop()
    answers = _run(loop, all_callers())
    assert len(answers) == CALLERS
    assert node.asked < 10 * CALLERS


def test_who_can_not_be_answered_in_time_hears_that_the_node_is_busy() -> None:
    node = _BusyNode(never=True)

    async def one_caller() -> None:
        route = _route(node, loop)
        with pytest.raises(ResourceExhaustedError, match="busy"):
            await route.infer("d", INPUTS, LIMIT_S, hedge=False)

    loop = VirtualLoop()
    _run(loop, one_caller())
    assert loop.time() < LIMIT_S
    assert node.asked > 10, "it tries for as long as its deadline allows"


def test_whose_time_is_over_after_a_refusal_hears_when_to_come_again() -> None:
    node = _BusyNode(silent_from=2)

    async def one_caller() -> None:
        route = _route(node, loop)
        with pytest.raises(ResourceExhaustedError) as caught:
            await route.infer("d", INPUTS, LIMIT_S, hedge=False)
        assert float(caught.value.metadata["retry_after_s"]) == SAMPLE_S
        assert isinstance(caught.value.__cause__, DeadlineError)

    loop = VirtualLoop()
    _run(loop, one_caller())
    assert node.asked == 2
    assert node.times_put_off == 1


def test_a_call_that_ends_a_moment_before_its_caller_s_deadline_is_the_last() -> None:
    node = _BusyNode(silent_from=1, early_s=0.001)

    async def one_caller() -> None:
        with pytest.raises(DeadlineError):
            await _route(node, loop).infer("d", INPUTS, LIMIT_S, hedge=False)

    loop = VirtualLoop()
    _run(loop, one_caller())
    assert node.asked == 1


def test_a_connection_that_another_call_has_closed_costs_no_answer() -> None:
    node = _ClosedOnce()

    async def one_caller() -> Any:
        route = _route(node, loop)
        return await route.infer("d", INPUTS, LIMIT_S, hedge=False)

    loop = VirtualLoop()
    assert _run(loop, one_caller()).outputs.tolist() == INPUTS.tolist()
    assert node.asked == 2


def _run(loop: VirtualLoop, work: Coroutine[Any, Any, Any]) -> Any:
    asyncio.set_event_loop(loop)
    try:
        return loop.run_until_complete(work)
    finally:
        loop.is_over = True
        loop.close()
        asyncio.set_event_loop(None)


def _route(node: "_BusyNode", loop: VirtualLoop) -> RemoteRoute:
    return RemoteRoute(node, node, VirtualClock(loop))  # type: ignore[arg-type]  # it plays replicas and evidence


async def _later(seconds: float) -> None:
    """Returns when so much virtual time is over."""
    over = asyncio.get_running_loop().create_future()
    asyncio.get_running_loop().call_later(seconds, over.set_result, None)
    await over


class _BusyNode:
    """The only replica, with the server's own rule of whom to take; and who is told of its answers."""

    name = node_id = "node-1"

    def __init__(self, *, never: bool = False, silent_from: int = 0, early_s: float = 0.0) -> None:
        self.asked = self._queued = self.times_put_off = 0
        self._limit = 0 if never or silent_from else QUEUE
        self._silent_from, self._early_s = silent_from, early_s
        self._turn = asyncio.Lock()
        self.node = self

    async def ready(self, *_: object) -> tuple["_BusyNode"]:
        return (self,)

    async def infer(self, *asked: object) -> InferResponse:
        self.asked += 1
        if 0 < self._silent_from <= self.asked:
            await _later(float(str(asked[-1])) - self._early_s)
            raise DeadlineError("It did not answer in time.")
        decision = admit(self._queued if self._limit else 1, 1, self._limit, SAMPLE_S, None)
        if not decision.admitted:
            hint = {"retry_after_s": str(decision.retry_after_s)}
            raise ResourceExhaustedError("This node is busy.", metadata=hint)
        self._queued += 1
        async with self._turn:
            await _later(SAMPLE_S)
        self._queued -= 1
        return InferResponse(outputs=message_of(INPUTS))

    def answered(self, *_: object) -> None:
        """An answer came."""

    def unfinished(self, *_: object) -> None:
        """No answer came."""

    def put_off(self, _: object) -> None:
        """It is the last to be asked for a while; nobody closes the connection of who is only late."""
        self.times_put_off += 1


class _ClosedOnce(_BusyNode):
    """A call's connection is closed by another's failure, the first time."""

    async def infer(self, *asked: object) -> InferResponse:
        if not self.asked:
            self.asked += 1
            raise CancelledError("inference server at node-1: CANCELLED")
        return await super().infer(*asked)

    def unfinished(self, *_: object) -> None:
        raise AssertionError("the node has done nothing wrong")
