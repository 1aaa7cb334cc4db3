"""The queue before a model: what waits together is computed together."""

import asyncio
from collections import deque
from dataclasses import dataclass
from itertools import takewhile
from typing import TYPE_CHECKING

import numpy as np

from peerloom.errors import ResourceExhaustedError
from peerloom.inference.server.batching import (
    Admission,
    admit,
    batch_limit,
    late,
    moving_mean,
    take_batch,
)
from peerloom.inference.server.computing import Array
from peerloom.kit.clock import Clock

if TYPE_CHECKING:
    from peerloom.inference.server.model_cache import LoadedPart


@dataclass
class Answer:
    """A request's outputs [n, ...], how long it waited, and what its batch took together."""

    outputs: Array
    queue_s: float
    model_s: float
    batch_samples: int


@dataclass
class _Request:
    inputs: Array
    arrived_s: float
    deadline_s: float | None
    answer: asyncio.Future[Answer]

    def left_s(self, now_s: float) -> float | None:
        """What its deadline leaves it."""
        return None if self.deadline_s is None else self.deadline_s - now_s


def _refusal(decision: Admission) -> ResourceExhaustedError:
    return ResourceExhaustedError(
        f"This node is busy: {decision.reason}. Come again in {decision.retry_after_s:.3f} s, or ask "
        "another node.",
        reason="INFERENCE_BUSY",
        metadata={"retry_after_s": f"{decision.retry_after_s:.3f}"},
    )


class BatchQueue:
    """The requests to one loaded model.

    `batch_samples` bounds what is computed together, and `queue_samples` what waits.
    Where the last batch held several requests, the next one waits up to `wait_s` for as many.
    """

    def __init__(
        self,
        loaded: "LoadedPart",
        batch_samples: int,
        wait_s: float,
        queue_samples: int,
        clock: Clock,
    ) -> None:
        self._loaded, self._clock = loaded, clock
        self._batch_samples, self._wait_s, self._queue_samples = batch_samples, wait_s, queue_samples
        self._waiting: deque[_Request] = deque()
        self._arrived = asyncio.Event()
        self._last_requests, self._last_samples = 1, 1
        self._under_way = (0.0, 0)  # since when so many samples are being computed
        self._busy_since_s: float | None = None  # when the last batch was over, if others waited then
        self._pace_s = 0.0
        self._working: asyncio.Task[None] | None = None

    @property
    def samples(self) -> int:
        """Samples that wait."""
        return sum(len(request.inputs) for request in self._waiting)

    @property
    def seconds_per_sample(self) -> float:
        """A moving mean of what a sample takes here, 0 before the first one.

        While others wait it is from one batch's end to the next one's: beside the computing also what else
        this process and its machine have to do in a crowd.
        """
        return self._pace_s

    @property
    def under_way_s(self) -> float:
        """Seconds that what is being computed should take yet, 0 if nothing is or nothing was measured."""
        begun_s, samples = self._under_way
        return max(0.0, begun_s + samples * self._pace_s - self._clock.monotonic_s()) if samples else 0.0

    async def infer(self, inputs: Array, remaining_s: float | None = None) -> Answer:
        """The model's answer, due in `remaining_s` (None: some time).

        Raises what the model raises, and ResourceExhaustedError where it can't be in time, or too many wait.
        """
        self._check_room(len(inputs), remaining_s)
        now_s = self._clock.monotonic_s()
        deadline_s = None if remaining_s is None else now_s + remaining_s
        request = _Request(inputs, now_s, deadline_s, asyncio.get_running_loop().create_future())
        self._waiting.append(request)
        self._arrived.set()
        if self._working is None or self._working.done():
            self._working = asyncio.create_task(self._work())
        return await request.answer

    async def _work(self) -> None:
        while self._waiting:
            await self._gather()
            self._leave_out_late_ones()
            if not self._waiting:
                self._busy_since_s = None
                return
            sizes = [len(request.inputs) for request in takewhile(self._fits_the_first, self._waiting)]
            oldest_s = self._waiting[0].left_s(self._clock.monotonic_s())
            limit = batch_limit(self._batch_samples, self._samples_together, self._pace_s, oldest_s)
            batch = [self._waiting.popleft() for _ in range(take_batch(sizes, limit))]
            self._last_requests = len(batch)
            self._last_samples = sum(len(request.inputs) for request in batch)
            started_s = self._clock.monotonic_s()
            self._under_way = (started_s, self._last_samples)
            try:
                outputs, model_s = await self._loaded.part.run(_together(batch))
            except Exception as error:
                self._busy_since_s = None
                # To whoever asked: one of them sent what the model can't compute, and each hears of it.
                for request in batch:
                    if not request.answer.done():
                        request.answer.set_exception(error)
                continue
            finally:
                self._under_way = (0.0, 0)
            self._deliver(batch, outputs, started_s, model_s)

    @property
    def _samples_together(self) -> int:
        # How many are computed together while several callers wait.
        return self._last_samples if self._last_requests > 1 else 1

    def _check_room(self, samples: int, remaining_s: float | None) -> None:
        decision = admit(
            self.samples,
            samples,
            self._queue_samples,
            self._pace_s,
            remaining_s,
            self.under_way_s,
            self._samples_together,
        )
        if not decision.admitted:
            raise _refusal(decision)

    def _leave_out_late_ones(self) -> None:
        # Nothing is computed for those who are gone, nor for those who became late, who are told.
        now_s, waiting = self._clock.monotonic_s(), [one for one in self._waiting if not one.answer.done()]
        told = [(len(one.inputs), one.left_s(now_s)) for one in waiting]
        refused = late(told, self._pace_s, self._samples_together)
        for place, decision in refused.items():
            waiting[place].answer.set_exception(_refusal(decision))
        self._waiting = deque(one for place, one in enumerate(waiting) if place not in refused)

    def _fits_the_first(self, request: _Request) -> bool:
        # Texts of other lengths can't be computed together.
        return request.inputs.shape[1:] == self._waiting[0].inputs.shape[1:]

    async def _gather(self) -> None:
        deadline_s = self._clock.monotonic_s() + self._wait_s
        while (
            len(self._waiting) < self._last_requests
            and (left_s := deadline_s - self._clock.monotonic_s()) > 0
        ):
            self._arrived.clear()
            try:
                await asyncio.wait_for(self._arrived.wait(), left_s)
            except TimeoutError:
                return

    def _deliver(self, batch: list[_Request], outputs: Array, started_s: float, model_s: float) -> None:
        samples, row = sum(len(request.inputs) for request in batch), 0
        self._loaded.note(model_s, samples)
        self._note_pace(model_s, samples)
        for request in batch:
            part, row = outputs[row : row + len(request.inputs)], row + len(request.inputs)
            if not request.answer.done():
                queue_s = started_s - request.arrived_s
                request.answer.set_result(Answer(part, queue_s, model_s, samples))

    def _note_pace(self, model_s: float, samples: int) -> None:
        now_s = self._clock.monotonic_s()
        taken_s = model_s if self._busy_since_s is None else max(model_s, now_s - self._busy_since_s)
        self._pace_s = moving_mean(self._pace_s, taken_s / samples)
        self._busy_since_s = now_s if self._waiting else None


def _together(batch: list[_Request]) -> Array:
    return batch[0].inputs if len(batch) == 1 else np.concatenate([request.inputs for request in batch])
