"""Rules of the product, broken one at a time: the simulation is worth what it finds of these."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any
from unittest import mock

from peerloom.kit import ids
from peerloom.kit.database import Database
from peerloom.kit.evidence import EvidenceReporter
from peerloom.services.node_agent.membership import heartbeats
from peerloom.services.registry.events.transition_queue import TransitionQueue
from peerloom.services.registry.membership import decisions as registry_decisions
from peerloom.services.selector.catalog.follower import Follower
from peerloom.services.trainer.jobs import record as job_record
from peerloom.services.trainer.jobs import sample_ledger
from peerloom.services.trainer.jobs.commit_queue import CommitQueue
from peerloom.services.trainer.jobs.event_log import EventLog
from peerloom.services.trainer.models.evaluating import ModelExaminer
from peerloom.services.trainer.store import TrainerStore
from peerloom.v1.artifact_pb2 import Artifact
from peerloom.v1.selector_pb2 import ReportEvidenceRequest
from peerloom.v1.trainer_pb2 import JobResult
from tests.simulation.planted_takeovers import (
    each_keeps_its_own_time,
    epoch_is_not_raised,
    leader_does_not_let_go,
    lost_answer_is_a_failure,
    machines_clock_is_trusted,
    nobody_looks_for_the_leader,
    one_that_finished_is_waited_for,
    woken_leader_goes_on,
)

Plant = Callable[[], AbstractContextManager[Any]]


def _replaced(place: Any, name: str, make: Callable[[Any], Any]) -> AbstractContextManager[Any]:
    return mock.patch.object(place, name, make(getattr(place, name)))


def evidence_without_its_id() -> AbstractContextManager[Any]:
    """Evidence that is sent again gets a new id, so the selector counts it again."""

    async def report_once(self: Any) -> int:
        batch = await self._outbox.oldest(200)
        if batch:
            selector, request = await self._selector(), ReportEvidenceRequest(evidence=batch)
            for fact in request.evidence:
                fact.evidence_id = f"{fact.evidence_id[:60]}/{ids.new_request_id()}"
            await selector.call(selector.stub.ReportEvidence, request, 10.0)
            await self._outbox.forget([fact.evidence_id for fact in batch])
        return len(batch)

    return mock.patch.object(EvidenceReporter, "report_once", report_once)


def evidence_forgotten_too_early() -> AbstractContextManager[Any]:
    """The trainer's outbox forgets evidence before the selector has it."""

    def make(report_once: Any) -> Any:
        async def forgetful(self: Any) -> int:
            batch = await self._outbox.oldest(200)
            if batch:
                await self._outbox.forget([fact.evidence_id for fact in batch])
                selector = await self._selector()
                await selector.call(selector.stub.ReportEvidence, ReportEvidenceRequest(evidence=batch), 10.0)
            return len(batch)

        return forgetful

    return _replaced(EvidenceReporter, "report_once", make)


def event_log_acknowledges_before_it_writes() -> AbstractContextManager[Any]:
    """Workers hear that their progress is stored when it has only been taken for writing."""

    async def write_once(self: Any) -> None:
        async with self._writing:
            taken = [(r.log, c) for r in self._live.values() if (c := r.take_change()) is not None]
            for log, change in taken:
                await log.confirm(change)
            if taken:
                await self._sql.run(self._store.write, [change for _, change in taken])
        self._reporter.wake()

    return mock.patch.object(CommitQueue, "write_once", write_once)


def registry_answers_before_it_commits() -> AbstractContextManager[Any]:
    """A registration is believed and answered while its commit is under way."""

    def make(commit: Any) -> Any:
        async def hasty(self: Any, transitions: Any, apply: Callable[[], None]) -> None:
            apply()
            self._hasty = getattr(self, "_hasty", [])
            import asyncio

            self._hasty.append(asyncio.create_task(commit(self, transitions, lambda: None)))

        return hasty

    return _replaced(TransitionQueue, "commit", make)


def epoch_is_not_checked() -> AbstractContextManager[Any]:
    """A process writes though another one holds the lease of its database by now."""

    @contextmanager
    def write(self: Database) -> Iterator[Any]:
        with self.engine.begin() as connection:
            yield connection

    return mock.patch.object(Database, "write", write)


@contextmanager
def generation_announced_before_it_is_stored() -> Iterator[None]:
    """Workers are told of a generation that a restart of the trainer forgets, and makes once more.

    Each commit takes half a second: the moment in which a restart shows it is too short otherwise.
    """
    write = CommitQueue._write

    async def at_once(self: EventLog) -> None:
        return

    async def late(self: CommitQueue, changes: list[Any]) -> None:
        await asyncio.sleep(0.5)  # of the loop's virtual time
        await write(self, changes)

    with (
        mock.patch.object(EventLog, "wait_written", at_once),
        mock.patch.object(CommitQueue, "_write", late),
    ):
        yield


def ledger_does_not_go_back() -> AbstractContextManager[Any]:
    """A job that goes on from a checkpoint keeps in its ledger what was lost after it."""
    return mock.patch.object(sample_ledger, "go_back", return_value=None)


def progress_counted_again() -> AbstractContextManager[Any]:
    """A step that a worker reports again after its session broke enters the record again."""

    def make(step_committed: Any) -> Any:
        def again(self: Any, step: Any) -> None:
            if step.step == self._job.progress.step:
                self._job.progress.step -= 1
            step_committed(self, step)

        return again

    return _replaced(job_record.JobRecord, "step_committed", make)


def watch_skips_after_resuming() -> AbstractContextManager[Any]:
    """A watch that goes on from an event leaves out the next."""

    def make(watch: Any) -> Any:
        def skipping(self: Any, job_id: str, after: int, stopping: Any) -> Any:
            return watch(self, job_id, after + (after > 0), stopping)

        return skipping

    return _replaced(CommitQueue, "watch", make)


def death_right_after_a_restart() -> AbstractContextManager[Any]:
    """A registry that has just started counts the silence of the time when nobody could be heard."""

    def make(judge: Any) -> Any:
        return lambda state, heard_s, listening_s, now_s, timing: judge(
            state, heard_s, min(listening_s, -100.0), now_s, timing
        )

    return _replaced(registry_decisions, "judge", make)


def submission_id_is_ignored() -> AbstractContextManager[Any]:
    """A job that is submitted again becomes another job."""

    def make(add_job: Any) -> Any:
        return lambda self, job, request_id: add_job(self, job, f"{request_id}/{job.job_id}")

    return _replaced(TrainerStore, "add_job", make)


def suspicion_is_not_refuted() -> AbstractContextManager[Any]:
    """A node that is suspected says nothing against it."""
    return mock.patch.object(heartbeats, "refuted_incarnation", lambda state, believed, own: own)


def follower_skips_an_event() -> AbstractContextManager[Any]:
    """The selector goes on one event too late after it lost the registry."""

    def make(follow: Any) -> Any:
        async def skipping(self: Any) -> None:
            if self._trouble and self._cursor.sequence and self._trouble != "not reached yet":
                sequence = self._cursor.sequence + 1
                self._cursor = type(self._cursor)(self._cursor.registry_id, sequence)
            await follow(self)

        return skipping

    return _replaced(Follower, "_follow", make)


def model_is_kept_before_it_is_evaluated() -> AbstractContextManager[Any]:
    """A trainer that dies while it evaluates a model finds the model when it is back, and looks no more."""

    def make(examine: Any) -> Any:
        async def late(self: Any, record: Any, model: Any) -> None:
            record.result_kept(JobResult(model=Artifact(digest=model.name)))
            await record.log.wait_written()
            await examine(self, record, model)

        return late

    return _replaced(ModelExaminer, "examine", make)


PLANTS: dict[str, Plant] = {
    plant.__name__: plant
    for plant in (
        evidence_without_its_id,
        evidence_forgotten_too_early,
        event_log_acknowledges_before_it_writes,
        registry_answers_before_it_commits,
        epoch_is_not_checked,
        epoch_is_not_raised,
        woken_leader_goes_on,
        leader_does_not_let_go,
        lost_answer_is_a_failure,
        machines_clock_is_trusted,
        each_keeps_its_own_time,
        nobody_looks_for_the_leader,
        one_that_finished_is_waited_for,
        generation_announced_before_it_is_stored,
        ledger_does_not_go_back,
        progress_counted_again,
        watch_skips_after_resuming,
        death_right_after_a_restart,
        submission_id_is_ignored,
        suspicion_is_not_refuted,
        follower_skips_an_event,
        model_is_kept_before_it_is_evaluated,
    )
}
