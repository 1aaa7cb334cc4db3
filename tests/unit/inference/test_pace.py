"""What a model's queue says of its own pace, which decides who is taken."""

import asyncio
from typing import Any

import numpy as np
import pytest

from peerloom.errors import ResourceExhaustedError
from peerloom.inference.server.batch_queue import BatchQueue
from peerloom.inference.server.model_cache import LoadedPart
from peerloom.kit.clock import ManualClock

MODEL_S, WHOLE_S, LIMIT_S = 0.2, 1.0, 30.0


class _Part:
    """Says that it has computed for 0.2 s, while a crowd keeps its machine for a whole second."""

    def __init__(self, clock: ManualClock) -> None:
        self._clock = clock
        self.queue: BatchQueue | None = None
        self.under_way_s: list[float] = []
        self.leaves: asyncio.Task[Any] | None = None

    async def run(self, inputs: Any) -> tuple[Any, float]:
        assert self.queue is not None
        if self.leaves is not None:
            self.leaves.cancel()
        self.under_way_s.append(self.queue.under_way_s)
        self._clock.advance(WHOLE_S)
        return inputs, MODEL_S


def _part_and_queue(clock: ManualClock) -> tuple[_Part, BatchQueue]:
    part = _Part(clock)
    loaded = LoadedPart(part)  # type: ignore[arg-type]  # of a served part the queue only calls `run`
    part.queue = BatchQueue(loaded, 1, 0.0, 100, clock)
    return part, part.queue


async def test_among_others_who_wait_a_sample_takes_what_lies_between_two_answers() -> None:
    clock = ManualClock()
    part, queue = _part_and_queue(clock)
    assert queue.seconds_per_sample == 0
    asks = [asyncio.create_task(queue.infer(np.ones((1, 1)))) for _ in range(3)]
    await asyncio.wait_for(asyncio.gather(*asks), LIMIT_S)
    # The first was alone: 0.2 s. Each of the others took 1 s, and moves the mean by a fifth of the way.
    assert queue.seconds_per_sample == pytest.approx(0.2 + 0.2 * 0.8 + 0.2 * (1 - 0.36))
    assert part.under_way_s == pytest.approx([0.0, 0.2, 0.36])
    assert queue.under_way_s == 0
    await asyncio.wait_for(queue.infer(np.ones((1, 1))), LIMIT_S)
    assert queue.seconds_per_sample == pytest.approx(0.488 + 0.2 * (0.2 - 0.488))  # alone again


async def test_a_pause_after_others_have_left_is_no_part_of_it() -> None:
    clock = ManualClock()
    part, queue = _part_and_queue(clock)
    asks = [asyncio.create_task(queue.infer(np.ones((1, 1)))) for _ in range(2)]
    part.leaves = asks[1]
    await asyncio.wait(asks, timeout=LIMIT_S)
    assert [ask.cancelled() for ask in asks] == [False, True]
    part.leaves = None
    clock.advance(100.0)
    await asyncio.wait_for(queue.infer(np.ones((1, 1))), LIMIT_S)
    assert queue.seconds_per_sample == pytest.approx(MODEL_S)


async def test_who_waits_and_can_t_be_in_time_any_more_is_told_when_to_come_again() -> None:
    """After the first one, whose answer came 1 s later, a sample is known to take 0.2 s."""
    _, queue = _part_and_queue(ManualClock())
    due_s = (None, 1.25, 1.3, 1.5)
    asks = [asyncio.create_task(queue.infer(np.ones((1, 1)), each_s)) for each_s in due_s]
    await asyncio.wait(asks, timeout=LIMIT_S)
    # The third has 0.3 s left, and needs 0.44 s behind the second; without it the fourth needs as much.
    assert [ask.exception() is None for ask in asks] == [True, True, False, True]
    error = asks[2].exception()
    assert isinstance(error, ResourceExhaustedError)
    assert error.metadata["retry_after_s"] == "0.140"
    assert "it would take 0.440 s, and the deadline leaves 0.300 s" in error.message
