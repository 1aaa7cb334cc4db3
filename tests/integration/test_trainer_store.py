"""One contract for the trainer's store: SQLite in memory and in a file, and PostgreSQL where one is given."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import sqlalchemy as sa
from databases import differences, new_database, open_held

import peerloom.services.trainer as package
from peerloom.errors import InvalidArgumentError, NotFoundError
from peerloom.kit.database import Database
from peerloom.services.trainer import tables
from peerloom.services.trainer.store import Change, TrainerStore
from peerloom.v1.selector_pb2 import Evidence
from peerloom.v1.trainer_pb2 import (
    JOB_STATE_QUEUED,
    JOB_STATE_SUCCEEDED,
    Job,
    JobSpec,
    StepProgress,
    WatchJobResponse,
)

MIGRATIONS = Path(package.__file__).parent / "migrations"


@pytest.fixture(params=["memory", "file", "postgresql"])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Database]:
    """A migrated database of each kind."""
    with new_database(request.param, tmp_path) as url:
        database = open_held(url, "trainer", MIGRATIONS)
        yield database
        database.close()


@pytest.fixture
def store(database: Database) -> TrainerStore:
    return TrainerStore(database)


def job(job_id: str = "job-a", state: int = JOB_STATE_QUEUED, model: str = "") -> Job:
    found = Job(job_id=job_id, spec=JobSpec(task="digits"), state=state, state_reason="ü")  # type: ignore[arg-type]  # an enum's number
    if model:
        found.result.model.digest = model
    return found


def step(sequence: int, job_id: str = "job-a") -> WatchJobResponse:
    return WatchJobResponse(sequence=sequence, job_id=job_id, step=StepProgress(step=sequence))


def fact(name: str) -> Evidence:
    return Evidence(evidence_id=name, node_id="node-1")


def test_a_job_is_stored_once_however_often_it_is_asked_for(store: TrainerStore) -> None:
    assert store.add_job(job(), "request-1") == job()
    assert store.add_job(job("job-b"), "request-1") == job()
    assert store.list_jobs([], 10, None) == ([(1, job())], False)


def test_a_change_is_written_as_a_whole_and_its_events_are_read_in_order(store: TrainerStore) -> None:
    store.add_job(job(), "request-1")
    ended = job(state=JOB_STATE_SUCCEEDED)
    store.write([Change(ended, [step(1), step(2)], [fact("one"), fact("two")])])
    assert store.find_job("job-a") == (ended, 2)
    assert store.read_events("job-a", 0, 10) == [step(1), step(2)]
    assert store.read_events("job-a", 1, 10) == [step(2)]
    assert store.pending_evidence(10) == [fact("one"), fact("two")]
    store.forget_evidence(["one"])
    assert store.pending_evidence(10) == [fact("two")]


def test_of_changes_of_which_one_fails_none_is_written(store: TrainerStore) -> None:
    store.add_job(job(), "request-1")
    store.write([Change(job(), [step(1)])])
    ended = job(state=JOB_STATE_SUCCEEDED)
    with pytest.raises(sa.exc.IntegrityError):
        store.write([Change(ended, [step(2)], [fact("one")]), Change(job(), [step(1)])])
    assert store.find_job("job-a") == (job(), 1)
    assert store.pending_evidence(10) == []


def test_secrets_of_workers_are_kept_beside_the_job_until_it_ends(store: TrainerStore) -> None:
    for name in ("job-a", "job-b"):
        store.add_job(job(name), f"request-{name}")
        store.write([Change(job(name), secrets={f"worker-{name}": "5" * 64})])
    store.write([Change(job("job-a"), secrets={"worker-2": "6" * 64})])
    assert store.worker_secrets("job-a") == {"worker-job-a": "5" * 64, "worker-2": "6" * 64}
    store.write([Change(job("job-a", JOB_STATE_SUCCEEDED))])
    assert store.worker_secrets("job-a") == {}
    assert store.worker_secrets("job-b") == {"worker-job-b": "5" * 64}


def test_a_job_is_found_by_the_beginning_of_its_id(store: TrainerStore) -> None:
    store.add_job(job("job-ab"), "request-1")
    store.add_job(job("job-abc"), "request-2")
    assert store.find_job("job-ab")[0].job_id == "job-ab"
    with pytest.raises(InvalidArgumentError, match="several jobs begin so"):
        store.find_job("job-a")
    with pytest.raises(NotFoundError):
        store.find_job("job-%")


def test_jobs_are_listed_newest_first_in_pages_and_by_state(store: TrainerStore) -> None:
    for number, state in enumerate((JOB_STATE_QUEUED, JOB_STATE_SUCCEEDED, JOB_STATE_QUEUED), 1):
        store.add_job(job(f"job-{number}", state), f"request-{number}")
    page, has_more = store.list_jobs([], 2, None)
    assert has_more
    assert [found.job_id for _, found in page] == ["job-3", "job-2"]
    rest, has_more = store.list_jobs([], 2, page[-1][0])
    assert ([found.job_id for _, found in rest], has_more) == (["job-1"], False)
    queued, _ = store.list_jobs([JOB_STATE_QUEUED], 10, None)
    assert [found.job_id for _, found in queued] == ["job-3", "job-1"]


def test_a_page_ends_before_it_is_too_large_for_a_client_and_the_next_goes_on(store: TrainerStore) -> None:
    """Three records of 1 MiB: two were too much for a client, which takes 4 MiB, if they were four."""
    for number in (1, 2, 3):
        large = job(f"job-{number}")
        large.state_reason = "x" * 2**20
        store.add_job(large, f"request-{number}")
    pages, before, has_more = [], None, True
    while has_more:
        page, has_more = store.list_jobs([], 100, before)
        pages.append([found.job_id for _, found in page])
        before = page[-1][0]
    assert pages == [["job-3"], ["job-2"], ["job-1"]]


def test_events_of_old_and_of_long_jobs_are_forgotten(store: TrainerStore) -> None:
    """Of three jobs two have ended, of which the newest alone is kept; of each job three events."""
    for number, state in enumerate((JOB_STATE_SUCCEEDED, JOB_STATE_SUCCEEDED, JOB_STATE_QUEUED), 1):
        name = f"job-{number}"
        store.add_job(job(name), f"request-{number}")
        store.write([Change(job(name, state), [step(n, name) for n in range(1, 6)])])
    assert store.prune_events(ended_jobs=1, events=3) == (5 + 2 + 2, None)
    kept = [[e.sequence for e in store.read_events(f"job-{n}", 0, 10)] for n in (1, 2, 3)]
    assert kept == [[], [3, 4, 5], [3, 4, 5]]
    assert store.prune_events(ended_jobs=1, events=3) == (0, None)
    assert len(store.list_jobs([], 10, None)[0]) == 3, "the jobs themselves stay"


def test_a_reader_of_events_gets_few_large_ones_at_a_time(store: TrainerStore) -> None:
    store.add_job(job(), "request-1")
    events = [step(n) for n in range(1, 5)]
    for event in events:
        event.step.ClearField("step")
        event.state_change.reason = "x" * 40_000
    store.write([Change(job(), events)])
    assert [event.sequence for event in store.read_events("job-a", 0, 10)] == [1, 2]
    assert [event.sequence for event in store.read_events("job-a", 2, 10)] == [3, 4]


def test_models_of_one_name_are_numbered_once_each(store: TrainerStore) -> None:
    for number in (1, 2):
        store.add_job(job(f"job-{number}"), f"request-{number}")
        for _ in range(2):
            store.write([Change(job(f"job-{number}", JOB_STATE_SUCCEEDED, model=f"{number}" * 64))])
    models, has_more = store.list_models(10, None)
    versions = [(found.job_id, version) for _, found, _, version in models]
    assert not has_more
    assert versions == [("job-2", 2), ("job-1", 1)]


def test_the_migrations_make_the_tables_that_the_code_uses(database: Database) -> None:
    with database.read() as connection:
        assert differences(connection, tables.metadata) == []
