"""Chooses how a job is synchronised by what its workers measure, where the job leaves that to the trainer.

A change is a generation of the same workers that meets beside the training. Of the measurements the record
keeps what they led to, and what steps took with each method; workers say the rest again to a trainer that was
started anew.
"""

import asyncio
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from statistics import median

from peerloom.errors import InvalidArgumentError
from peerloom.kit.clock import Clock
from peerloom.kit.logs import get_logger
from peerloom.kit.robust_rules import OFF
from peerloom.kit.sync_auto import AutoSync, asked_sync
from peerloom.kit.sync_grammar import parse_sync
from peerloom.kit.sync_method import NONE, SyncMethod
from peerloom.services.trainer.generations.decision_types import Form
from peerloom.services.trainer.generations.known_ways import KnownWays
from peerloom.services.trainer.generations.sync_decisions import (
    CHANGE_INTERVAL_S,
    LONG_MEASURED_S,
    LONG_STEPS_MEASURED,
    MEASURED_S,
    STEPS_MEASURED,
    MeasuredStep,
    SyncSituation,
    SyncVerdict,
    decide_sync,
    may_change,
)
from peerloom.services.trainer.generations.sync_measures import (
    Predictions,
    methods_for,
    predictions_of,
    setting_of,
)
from peerloom.services.trainer.generations.used_methods import UsedMethods
from peerloom.services.trainer.jobs.record import JobRecord
from peerloom.services.trainer.jobs.sync_entries import JudgedSync, in_use
from peerloom.services.trainer.workers.state import WorkerState
from peerloom.v1.trainer_pb2 import StepProgress, WorkerMeasured

JUDGE_INTERVAL_S = 5.0
WARM_UP_STEPS = 2  # connections are new, and DDP cuts its buckets again after the first
WINDOW_S = 10.0  # longer ago tells nothing of now
DRIFT = 1.25  # computing so many times as long or short makes other predictions, and a step so short
ALONE = "a single worker has nobody to synchronise with"
_log = get_logger()


class SyncTuner:
    """One job's. It has a say only where the job's `sync` is "auto"."""

    def __init__(self, record: JobRecord, clock: Clock) -> None:
        job = record.job
        self._record = record
        self._clock = clock
        asked = asked_sync("spec.sync", job.spec.sync, job.spec.robust or OFF)
        self._quality = asked.quality if isinstance(asked, AutoSync) else ""
        self._measured: dict[str, WorkerMeasured] = {}
        self._ways = KnownWays()
        self._generation = 0  # that the steps and predictions are of
        self._members = self._ranked_members()
        self._steps: deque[StepProgress] = deque()
        self._steps_s = 0.0
        self._warm_up = WARM_UP_STEPS
        self._predicted = Predictions()
        self._predicted_at_s = 0.0
        tried = {_parsed(one.method): one.step_s for one in job.sync_in_use.tried}
        self._used = UsedMethods(_parsed(in_use(job)) if self._quality else SyncMethod(), tried)
        # A trainer that was started anew can't know when the last change was.
        self._changed_s = clock.monotonic_s() if job.sync_in_use.changes else None
        self._verdict: SyncVerdict | None = None
        self._news = asyncio.Event()

    @property
    def has_a_say(self) -> bool:
        """Whether the job leaves the method to the trainer."""
        return bool(self._quality)

    def heard(self, worker_id: str, measured: WorkerMeasured) -> None:
        """A worker has measured its links, its codecs, and perhaps the layers."""
        self._measured[worker_id] = measured
        members = self._ranked_members()  # of a generation whose first step may not be told of yet
        is_new = measured.generation == self._record.generation and not measured.ways_known
        if is_new and worker_id in members:
            rank, now_s = members.index(worker_id), self._clock.monotonic_s()
            self._ways.note(self._nodes_of(members), rank, measured, now_s)
        self._news.set()

    def knows_ways(self, worker_ids: Sequence[str]) -> bool:
        """Whether these workers, by rank, need not measure the ways between their nodes."""
        if not self.has_a_say:
            return False
        return self._ways.cover(self._nodes_of(worker_ids), self._clock.monotonic_s())

    def stepped(self, step: StepProgress) -> None:
        """A step was committed."""
        if not self.has_a_say or step.generation != self._record.generation:
            return
        if step.generation != self._generation:
            self._begin(step.generation)
        if self._warm_up:
            self._warm_up -= 1
            return
        before = self._has_some, self._has_enough
        self._steps.append(step)
        self._steps_s += step.step_s
        while self._steps_s > WINDOW_S and len(self._steps) > STEPS_MEASURED:
            self._steps_s -= self._steps.popleft().step_s
        if (self._has_some, self._has_enough) != before:
            self._news.set()

    async def keep_forever(self) -> None:
        """Judges the method in use now and then, until cancelled."""
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(JUDGE_INTERVAL_S if self.has_a_say else None):
                    await self._news.wait()
            self._news.clear()
            await self.judge()

    def change(self, workers: Sequence[WorkerState]) -> Form | None:
        """The generation that takes another method, if one is wanted, and all work in peace."""
        verdict = self._verdict
        if verdict is None or not verdict.is_change or self._generation != self._record.generation:
            return None
        members = [worker.worker_id for worker in workers if worker.is_member]
        if not may_change(workers) or sorted(members) != sorted(self._members):
            return None
        self._verdict, self._changed_s = None, self._clock.monotonic_s()
        step = int(self._record.job.progress.step)
        return Form(self._members, step, 0, verdict.reason, beside=True, sync=str(verdict.method))

    def _begin(self, generation: int) -> None:
        # Of the generation before, what its steps took still counts if it had the same workers.
        members, method = self._ranked_members(), _parsed(in_use(self._record.job))
        are_same = sorted(members) == sorted(self._members)
        self._used.begin(method, are_same, self._median(), self._predicted.of_present)
        self._generation, self._members = generation, members
        self._steps.clear()
        self._steps_s = 0.0
        self._warm_up, self._verdict = WARM_UP_STEPS * self._used.in_use.batches, None
        self._predicted = Predictions()

    def _ranked_members(self) -> tuple[str, ...]:
        job = self._record.job
        members = [worker for worker in job.workers if worker.generation == job.generation]
        return tuple(worker.worker_id for worker in sorted(members, key=lambda worker: worker.rank))

    def _nodes_of(self, worker_ids: Sequence[str]) -> list[str]:
        """The name of each one's node."""
        names = {worker.worker_id: worker.node_name for worker in self._record.job.workers}
        return [names[worker_id] for worker_id in worker_ids]

    @property
    def _has_some(self) -> bool:
        return self._steps_s >= MEASURED_S

    @property
    def _has_enough(self) -> bool:
        least = LONG_STEPS_MEASURED if self._steps_s >= LONG_MEASURED_S else STEPS_MEASURED
        return len(self._steps) >= least and self._has_some

    def _median(self) -> MeasuredStep | None:
        if not self._has_some:
            return None
        return MeasuredStep(
            median(step.step_s for step in self._steps),
            median(step.compute_s for step in self._steps),
            median(step.communication_s for step in self._steps),
            is_rough=not self._has_enough,
        )

    async def judge(self) -> None:
        """Looks at what is measured by now; what comes of it is in the record, or in `change`."""
        generation = self._generation
        if not generation or generation != self._record.generation:
            return
        if len(self._members) == 1:
            verdict = SyncVerdict(self._used.in_use, ALONE)
            self._record.sync_judged(JudgedSync(verdict, self._median(), self._used.tried))
            return
        steps = self._telling_steps()
        if not self._predicted.methods or steps is not None:
            predicted = await self._predict(steps)
            if generation != self._generation:
                return
            self._predicted, self._predicted_at_s = predicted, self._clock.monotonic_s()
        progress, now_s = self._record.job.progress, self._clock.monotonic_s()
        measured = self._median()
        self._verdict = decide_sync(
            SyncSituation(
                self._used.in_use,
                self._predicted.methods,
                measured,
                int(progress.total_steps - progress.step),
                self._used.tried,
                None if self._changed_s is None else now_s - self._changed_s,
                self._record.job.sync_in_use.changes,
                self._used.is_new,
                self._used.roughly,
            )
        )
        of_present = self._used.foretold(self._predicted.of_present)
        self._record.sync_judged(JudgedSync(self._verdict, measured, self._used.tried, of_present))

    def _telling_steps(self) -> MeasuredStep | None:
        """What steps take by now, where the predictions are of another time.

        Layers are timed in a generation's first steps, when much is new: the first predictions are by that,
        and made again once some steps are measured, and once enough are. With a codec encoding is a part of
        computing, which then tells nothing of the layers.
        """
        measured = self._median()
        if measured is None or self._used.in_use.codec != NONE:
            return None
        then = self._predicted.by
        if then is None or (then.is_rough and not measured.is_rough):
            return measured
        if measured.is_rough:
            return None
        if self._clock.monotonic_s() - self._predicted_at_s < CHANGE_INTERVAL_S:
            return None
        has_drifted = not then.compute_s / DRIFT <= measured.compute_s <= then.compute_s * DRIFT
        return measured if has_drifted or measured.step_s * DRIFT < then.step_s else None

    async def _predict(self, steps: MeasuredStep | None) -> Predictions:
        """By what all members have measured, and `steps` of the method in use; nothing while one hasn't."""
        said = [self._measured.get(worker_id) for worker_id in self._members]
        known = [one for one in said if one is not None and one.generation == self._generation]
        if len(known) < len(self._members):
            return Predictions()
        try:
            nodes = self._nodes_of(self._members)
            compute_s = 0.0 if steps is None else steps.compute_s
            setting = setting_of(self._ways.filled(known, nodes), nodes, compute_s)
            if setting is None:
                return Predictions()
            methods = methods_for(self._quality, setting, self._record.job.sync_in_use.bears_rounds)
            # Some tens of simulations: not in the loop that waits for workers' signs of life.
            # Others come in while the thread reads these.
            tried, roughly = dict(self._used.tried), tuple(self._used.roughly)
            return await asyncio.to_thread(
                predictions_of, methods, setting, self._used.in_use, tried, steps, roughly
            )
        except InvalidArgumentError as error:  # what a worker said can't be
            _log.warning("sync_not_predicted", job=self._record.job_id, reason=error.message)
            return Predictions()


def _parsed(text: str) -> SyncMethod:
    return parse_sync("sync_in_use", text)
