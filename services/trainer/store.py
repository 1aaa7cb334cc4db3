"""What the trainer keeps: jobs with their events, and evidence until the selector has it."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import sqlalchemy as sa

from peerloom.errors import InvalidArgumentError, NotFoundError
from peerloom.kit.database import Database
from peerloom.kit.limits import ENDED_STATES
from peerloom.kit.paging import fill_page
from peerloom.services.trainer.jobs import job_queries
from peerloom.services.trainer.jobs.specs import model_name
from peerloom.services.trainer.tables import (
    evidence_outbox,
    job_events,
    jobs,
    model_versions,
    worker_secrets,
)
from peerloom.v1.selector_pb2 import Evidence
from peerloom.v1.trainer_pb2 import Job, WatchJobResponse

PRUNED_JOBS, LOOKED_JOBS = 100, 1_000  # in one transaction: calls wait for it
EVENTS_BYTES = 64 * 1024  # what a watcher holds of a job's events at most, but for its newest one


@dataclass
class Change:
    """What is written together: a job as it is now, its new events, and evidence it gave rise to.

    `secrets` has those of workers that are about to be started, by their ids.
    """

    job: Job
    events: list[WatchJobResponse] = field(default_factory=list)
    evidence: list[Evidence] = field(default_factory=list)
    secrets: dict[str, str] = field(default_factory=dict, repr=False)


class TrainerStore:
    """Jobs, events and outgoing evidence in one database. Synchronous: call it through SqlThread."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def add_job(self, job: Job, request_id: str) -> Job:
        """Stores a new job; returns it, or the one that this request made before."""
        with self._database.write() as connection:
            query = sa.select(jobs.c.record).where(jobs.c.request_id == request_id)
            known = connection.execute(query).scalar_one_or_none()
            if known is not None:
                return Job.FromString(known)
            row = {"job_id": job.job_id, "request_id": request_id, "last_sequence": 0, **_columns(job)}
            connection.execute(sa.insert(jobs).values(row))
        return job

    def settled_job(self, job: Job, request_id: str) -> Job:
        """The same, once no earlier write of this process can take effect any more."""
        self._database.settle()
        return self.add_job(job, request_id)

    def write(self, changes: Sequence[Change]) -> None:
        """Writes all changes in one transaction."""
        with self._database.write() as connection:
            for change in changes:
                values = _columns(change.job)
                if change.events:
                    values["last_sequence"] = change.events[-1].sequence
                connection.execute(sa.update(jobs).where(jobs.c.job_id == change.job.job_id).values(values))
                if change.job.result.model.digest:
                    _name_model(connection, change.job)
                events = [
                    {"job_id": e.job_id, "sequence": e.sequence, "event": e.SerializeToString()}
                    for e in change.events
                ]
                if events:
                    connection.execute(sa.insert(job_events), events)
                _keep_secrets(connection, change)
                for item in change.evidence:
                    values = {"evidence_id": item.evidence_id, "evidence": item.SerializeToString()}
                    connection.execute(sa.insert(evidence_outbox).values(values))

    def was_written(self, changes: Sequence[Change]) -> bool:
        """Whether a write of these, whose answer was lost, was made; then it was made of all of them.

        False also where nothing of them can tell; they can be written again then.
        """
        self._database.settle()
        with self._database.read() as connection:
            return any(_is_written(connection, change) for change in changes)

    def find_job(self, beginning: str) -> tuple[Job, int]:
        """The job whose id begins so, with its last sequence number.

        Raises NotFoundError, or InvalidArgumentError when several do.
        """
        with self._database.read() as connection:
            found = connection.execute(job_queries.jobs_called(beginning)).all()
            if not found:
                found = connection.execute(job_queries.jobs_beginning(connection, beginning)).all()
            if len(found) == 1:
                return Job.FromString(found[0].record), found[0].last_sequence
            if found and beginning:
                limit = "a longer beginning: several jobs begin so"
                raise InvalidArgumentError.of_field("job_id", beginning, limit)
            newest = connection.execute(sa.select(jobs.c.job_id).order_by(jobs.c.number.desc()).limit(1000))
            raise NotFoundError.of_name("job", beginning, newest.scalars())

    def list_jobs(
        self, states: Sequence[int], limit: int, before: int | None
    ) -> tuple[list[tuple[int, Job]], bool]:
        """A page of at most `limit` jobs with their numbers, newest first, older than number `before`.

        And whether there are more.
        """
        query = job_queries.newest_jobs(states, limit + 1, before)
        with self._database.read() as connection:
            rows, has_more = fill_page(connection.execute(query), limit, lambda row: len(row.record))
        return [(row.number, Job.FromString(row.record)) for row in rows], has_more

    def list_models(self, limit: int, before: int | None) -> tuple[list[tuple[int, Job, str, int]], bool]:
        """A page of at most `limit` jobs that left a model, newest first, and whether there are more.

        Of each its number, the job, and the model's name and version.
        """
        query = (
            sa.select(jobs.c.number, jobs.c.record, model_versions.c.name, model_versions.c.version)
            .join(model_versions, model_versions.c.job_id == jobs.c.job_id)
            .order_by(jobs.c.number.desc())
            .limit(limit + 1)
        )
        if before is not None:
            query = query.where(jobs.c.number < before)
        with self._database.read() as connection:
            rows, has_more = fill_page(connection.execute(query), limit, lambda row: len(row.record))
        return [(row.number, Job.FromString(row.record), row.name, row.version) for row in rows], has_more

    def read_events(self, job_id: str, after: int, limit: int) -> list[WatchJobResponse]:
        """At most `limit` events of a job after a sequence number, in order; little over EVENTS_BYTES."""
        query = (
            sa.select(job_events.c.event)
            .where(job_events.c.job_id == job_id, job_events.c.sequence > after)
            .order_by(job_events.c.sequence)
            .limit(limit)
        )
        events, total = [], 0
        with self._database.read() as connection:
            for data in connection.execute(query).scalars():
                events.append(WatchJobResponse.FromString(data))
                total += len(data)
                if total > EVENTS_BYTES:
                    break
        return events

    def prune_events(self, ended_jobs: int, events: int, after: int = 0) -> tuple[int, int | None]:
        """Keeps events of the newest `ended_jobs` ended jobs, at most `events` of each job.

        It looks at jobs numbered above `after`: LOOKED_JOBS of them, or fewer once 100 old ones lost events.
        Returns how many events it forgot, and after which number to go on; None: these were the last jobs.
        """
        is_of_job, count = job_events.c.job_id, 0
        with self._database.write() as connection:
            newest = connection.scalar(sa.select(sa.func.max(jobs.c.number))) or 0
            last = connection.scalar(job_queries.oldest_kept(ended_jobs)) or 0
            through = min(after + LOOKED_JOBS, newest)
            query = job_queries.ended_with_events(after, min(last, through), PRUNED_JOBS)
            old = connection.execute(query).all()
            if len(old) == PRUNED_JOBS:
                through = old[-1].number
            gone = is_of_job.in_([row.job_id for row in old])
            count += connection.execute(sa.delete(job_events).where(gone)).rowcount
            long = job_queries.longer_than(events, last, after, through)
            for job_id, sequence in connection.execute(long).all():
                spent = job_events.c.sequence <= sequence - events
                count += connection.execute(sa.delete(job_events).where(is_of_job == job_id, spent)).rowcount
        return count, through if through < newest else None

    def worker_secrets(self, job_id: str) -> dict[str, str]:
        """The secrets of the workers that were started for a job that has not ended, by their ids."""
        query = sa.select(worker_secrets.c.worker_id, worker_secrets.c.secret)
        with self._database.read() as connection:
            found = connection.execute(query.where(worker_secrets.c.job_id == job_id))
            return {row.worker_id: row.secret for row in found}

    def pending_evidence(self, limit: int) -> list[Evidence]:
        """The oldest evidence that the selector has not acknowledged, at most `limit`."""
        query = sa.select(evidence_outbox.c.evidence).order_by(evidence_outbox.c.number).limit(limit)
        with self._database.read() as connection:
            return [Evidence.FromString(data) for data in connection.execute(query).scalars()]

    def forget_evidence(self, evidence_ids: Sequence[str]) -> None:
        """Takes acknowledged evidence out."""
        with self._database.write() as connection:
            connection.execute(
                sa.delete(evidence_outbox).where(evidence_outbox.c.evidence_id.in_(evidence_ids))
            )


def _is_written(connection: sa.Connection, change: Change) -> bool:
    if change.events:
        query = sa.select(jobs.c.last_sequence).where(jobs.c.job_id == change.job.job_id)
        return (connection.scalar(query) or 0) >= change.events[-1].sequence
    ids = [item.evidence_id for item in change.evidence]
    told = sa.select(evidence_outbox.c.number).where(evidence_outbox.c.evidence_id.in_(ids))
    kept = sa.select(worker_secrets.c.job_id).where(worker_secrets.c.worker_id.in_(change.secrets))
    return any(connection.execute(query).first() is not None for query in (told, kept))


def _keep_secrets(connection: sa.Connection, change: Change) -> None:
    """Keeps new workers' secrets, and forgets all of a job that has ended."""
    job_id = change.job.job_id
    if change.secrets:
        rows = [{"worker_id": w, "job_id": job_id, "secret": secret} for w, secret in change.secrets.items()]
        connection.execute(sa.insert(worker_secrets), rows)
    if change.job.state in ENDED_STATES:
        connection.execute(sa.delete(worker_secrets).where(worker_secrets.c.job_id == job_id))


def _name_model(connection: sa.Connection, job: Job) -> None:
    """Gives a job's model the next version of its name, once."""
    known = sa.select(model_versions.c.version).where(model_versions.c.job_id == job.job_id)
    if connection.execute(known).first() is not None:
        return
    name = model_name(job.spec)
    newest = sa.select(sa.func.max(model_versions.c.version)).where(model_versions.c.name == name)
    version = (connection.execute(newest).scalar_one() or 0) + 1
    row = {"name": name, "version": version, "job_id": job.job_id}
    connection.execute(sa.insert(model_versions).values(row))


def _columns(job: Job) -> dict[str, object]:
    return {
        "state": job.state,
        "model_digest": job.result.model.digest,
        "record": job.SerializeToString(),
    }
