"""Aim: jobs are found as fast after years as on the first day.

Method: a table with thousands of jobs, on SQLite and PostgreSQL. Each statement that the store sends is
explained by the database itself: none may read the whole table of jobs.
"""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from databases import new_database, open_held

import peerloom.services.trainer as package
from peerloom.errors import InvalidArgumentError
from peerloom.kit.database import Database
from peerloom.services.trainer import tables
from peerloom.services.trainer.jobs.supervisor import ACTIVE
from peerloom.services.trainer.store import TrainerStore
from peerloom.v1.trainer_pb2 import JOB_STATE_FAILED, JOB_STATE_RUNNING, JOB_STATE_SUCCEEDED, Job

JOBS = 4000
WHOLE_TABLE = ("Seq Scan on jobs", "SCAN jobs")  # as PostgreSQL says it, and SQLite
pytestmark = pytest.mark.timeout(120)


def job_row(number: int) -> dict[str, Any]:
    """Every tenth job failed, every thousandth runs; all others succeeded."""
    state = JOB_STATE_FAILED if number % 10 == 1 else JOB_STATE_SUCCEEDED
    state = JOB_STATE_RUNNING if number % 1000 == 7 else state
    job = Job(job_id=f"job-{number:012x}", state=state, state_reason="x" * 600)
    return {
        "job_id": job.job_id,
        "request_id": f"request-{number}",
        "state": state,
        "model_digest": "",
        "last_sequence": 3,
        "record": job.SerializeToString(),
    }


@pytest.fixture(scope="module", params=["file", "postgresql"])
def database(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Database]:
    """The trainer's, with many jobs, which the database has counted."""
    with new_database(request.param, tmp_path_factory.mktemp("jobs")) as url:
        opened = open_held(url, "trainer", Path(package.__file__).parent / "migrations")
        with opened.write() as connection:
            connection.execute(sa.insert(tables.jobs), [job_row(number) for number in range(JOBS)])
            connection.exec_driver_sql("ANALYZE")
        yield opened
        opened.close()


def plans_of(database: Database, ask: Callable[[TrainerStore], object]) -> str:
    """How the database goes about each statement that is sent to it."""
    sent: list[tuple[str, Any]] = []

    def note(_connection: Any, _cursor: Any, statement: str, parameters: Any, *_: Any) -> None:
        sent.append((statement, parameters))

    sa.event.listen(database.engine, "before_cursor_execute", note)
    try:
        ask(TrainerStore(database))
    finally:
        sa.event.remove(database.engine, "before_cursor_execute", note)
    explain = "EXPLAIN QUERY PLAN" if database.engine.dialect.name == "sqlite" else "EXPLAIN"
    with database.read() as connection:
        found = [row for s, p in sent for row in connection.exec_driver_sql(f"{explain} {s}", p)]
    return "\n".join(str(row[-1]) for row in found)


def ask_for_several(store: TrainerStore) -> None:
    with pytest.raises(InvalidArgumentError, match="several jobs begin so"):
        store.find_job("job-00000000000")


@pytest.mark.parametrize(
    "ask",
    [
        lambda store: store.find_job(f"job-{7:012x}"),
        ask_for_several,
        lambda store: store.list_jobs([JOB_STATE_SUCCEEDED], 50, None),
        lambda store: store.list_jobs([JOB_STATE_FAILED, JOB_STATE_RUNNING], 50, 2000),
        lambda store: store.list_jobs(ACTIVE, 1000, None),
    ],
    ids=["by id", "by a beginning", "of a state", "older ones of two states", "alive"],
)
def test_no_call_reads_all_jobs(database: Database, ask: Callable[[TrainerStore], object]) -> None:
    plans = plans_of(database, ask)
    assert plans
    assert not any(words in plans for words in WHOLE_TABLE), plans


def test_jobs_of_several_states_come_newest_first_in_pages(database: Database) -> None:
    store, found, before, has_more = TrainerStore(database), list[int](), None, True
    while has_more:
        page, has_more = store.list_jobs([JOB_STATE_FAILED, JOB_STATE_RUNNING], 150, before)
        found += [number for number, _ in page]
        before = found[-1]
    # Numbers begin at 1, with job 0.
    assert found == [n + 1 for n in reversed(range(JOBS)) if n % 10 == 1 or n % 1000 == 7]


def test_events_of_many_ended_jobs_are_forgotten_in_steps(database: Database) -> None:
    """Each step is one transaction, for which all calls wait: it forgets, and looks at, so many at most."""
    store, kept = TrainerStore(database), JOBS - JOBS // 1000 - 250  # of every thousand one runs
    with database.write() as connection:
        rows = [{"job_id": f"job-{n:012x}", "sequence": 1, "event": b""} for n in range(JOBS)]
        connection.execute(sa.insert(tables.job_events), rows)
    steps: list[tuple[int, int | None]] = []
    after: int | None = 0
    while after is not None:
        steps.append(store.prune_events(kept, 10, after))
        after = steps[-1][1]
    # Numbers begin at 1, and of the first 251 the 8th runs: 250 have ended and are too old.
    assert steps == [(100, 101), (100, 201), (50, 1201), (0, 2201), (0, 3201), (0, None)]
