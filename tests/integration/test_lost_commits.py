"""Aim: a failover in mid-commit loses nothing that was acknowledged, and counts nothing twice.

Method: the parts that keep what services know, each over a real PostgreSQL whose connection breaks at a
commit, once before the database has made it and once after. Then memory and database must say the same.
"""

import asyncio
import threading
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from databases import new_database, open_held
from lost_answers import lost_answer

from peerloom.errors import UnavailableError
from peerloom.kit.clock import ManualClock
from peerloom.kit.database import Database, SqlThread
from peerloom.kit.database_errors import OUTCOME_UNKNOWN
from peerloom.services import registry, selector, trainer
from peerloom.services.registry.core import RegistryLimits, load_core
from peerloom.services.registry.membership.application import check_application
from peerloom.services.registry.membership.decisions import Timing
from peerloom.services.registry.membership.node_retention import RetentionLimits
from peerloom.services.registry.store import Store
from peerloom.services.selector.belief.evidence_report import Evidence
from peerloom.services.selector.belief.formula import Weights
from peerloom.services.selector.catalog.columns import NodeColumns
from peerloom.services.selector.catalog.writer import CatalogWriter
from peerloom.services.selector.store import SelectorStore
from peerloom.services.trainer.jobs.commit_queue import CommitQueue
from peerloom.services.trainer.jobs.supervisor import submitted
from peerloom.services.trainer.store import TrainerStore
from peerloom.v1.common_pb2 import MachineSpeed
from peerloom.v1.registry_pb2 import NodeSpec, RegisterRequest
from peerloom.v1.selector_pb2 import EVIDENCE_KIND_TRAINING
from peerloom.v1.trainer_pb2 import JobSpec, StepProgress

LIMIT_S = 60.0
SERVICES = {"registry": registry, "selector": selector, "trainer": trainer}
pytestmark = [
    pytest.mark.timeout(120),
    pytest.mark.parametrize("is_made", [False, True], ids=["lost before", "made"]),
]


@pytest.fixture
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Database]:
    """A service's tables on PostgreSQL; the test's name says whose."""
    service = request.node.originalname.removeprefix("test_the_").split("_")[0].removesuffix("s")
    with new_database("postgresql", tmp_path) as url:
        opened = open_held(url, service, Path(SERVICES[service].__file__ or "").parent / "migrations")
        yield opened
        opened.close()


async def test_the_registrys_memory_and_log_agree(database: Database, is_made: bool) -> None:
    timing = Timing(heartbeat_interval_s=1.0, suspect_after_s=3.0, dead_after_s=10.0, restart_grace_s=5.0)
    limits = RegistryLimits(timing, 15.0, RetentionLimits(nodes=100, days=30.0, events=1000))
    clock, ids = ManualClock(), {name: str(uuid.uuid4()) for name in ("ada", "bob", "cid")}
    with SqlThread(database) as sql:
        core = await load_core(Store(database), sql.run, limits, clock)
        writing = asyncio.create_task(core.commits.write_forever())

        async def register(name: str) -> None:
            spec = NodeSpec(name=name, address="10.0.0.1:7500", slots=1, speed=MachineSpeed())
            request = RegisterRequest(spec=spec, node_key="0" * 16, request_id=ids[name])
            await core.registrar.register(check_application(request))

        await register("ada")
        with lost_answer(database.engine, is_made=is_made):
            if is_made:
                await register("bob")
            else:
                with pytest.raises(UnavailableError, match="stored or not"):
                    await register("bob")
                await register("bob")
        await register("cid")
        writing.cancel()
        await asyncio.wait([writing])
        told = [(event.sequence, bytes(event.snapshot)) for event in Store(database).events_after(0, 10)]
        again = await load_core(Store(database), sql.run, limits, clock)
    assert [sequence for sequence, _ in told] == [1, 2, 3]
    assert core.feed.newest == again.feed.newest == 3
    assert core.table.by_id.keys() == again.table.by_id.keys()


async def test_the_selectors_columns_hold_what_was_counted(database: Database, is_made: bool) -> None:
    fact = Evidence("one", "node-a", EVIDENCE_KIND_TRAINING, time_s=1.0)
    columns, clock = NodeColumns(), ManualClock()
    with SqlThread(database) as sql:
        writer = CatalogWriter(sql, SelectorStore(database, Weights()), columns, clock)
        with lost_answer(database.engine, is_made=is_made), pytest.raises(UnavailableError) as raised:
            await writer.report([fact])
        assert raised.value.reason == OUTCOME_UNKNOWN
        assert len(columns) == int(is_made)
        assert await writer.report([fact]) == int(not is_made)
    assert columns.number("trainings").tolist() == [1.0]


class NoReports:
    """Nobody is told of evidence."""

    def wake(self) -> None:
        """What the queue calls when some was stored."""


async def test_the_trainers_events_are_written_once(database: Database, is_made: bool) -> None:
    store, clock = TrainerStore(database), ManualClock()
    job = store.add_job(submitted("job-1", JobSpec(task="digits"), clock.wall_s()), "request-1")

    async def no_pause(_: float) -> None:
        """The next attempt comes at once."""

    with SqlThread(database) as sql:
        reporter: Any = NoReports()
        queue = CommitQueue(store, sql, clock, reporter, no_pause)
        record = queue.open(job, 0)
        record.step_committed(StepProgress(step=1))
        with lost_answer(database.engine, is_made=is_made):
            await queue.write_once()
        assert record.log.durable.sequence == 0, "nobody is told before it is known"
        record.step_committed(StepProgress(step=2))
        await queue.close(record)
    assert record.log.durable.sequence == 2
    assert [event.step.step for event in store.read_events("job-1", 0, 10)] == [1, 2]


async def test_the_trainers_jobs_are_asked_for_once_more(database: Database, is_made: bool) -> None:
    store = TrainerStore(database)
    job = submitted("job-1", JobSpec(task="digits"), 0.0)
    with lost_answer(database.engine, is_made=is_made), pytest.raises(UnavailableError) as raised:
        store.add_job(job, "request-1")
    assert raised.value.reason == OUTCOME_UNKNOWN
    assert store.settled_job(job, "request-1") == job
    assert store.find_job("job-1") == (job, 0)


def test_the_trainers_look_waits_for_a_commit_under_way(database: Database, is_made: bool) -> None:
    """The server may still be at it when the client's end of the connection is gone."""
    store, found = TrainerStore(database), list[bool]()
    job = submitted("job-1", JobSpec(task="digits"), 0.0)
    with sa.create_engine(database.engine.url, poolclass=sa.NullPool).connect() as slow:
        transaction = slow.begin()
        slow.execute(sa.text("SELECT epoch FROM service_leases WHERE service = 'trainer' FOR SHARE"))
        looking = threading.Thread(target=lambda: found.append(store.settled_job(job, "request-1") == job))
        looking.start()
        _await_lock(database)
        assert not found
        if is_made:
            transaction.commit()
        else:
            transaction.rollback()
        looking.join(LIMIT_S)
    assert found == [True]


def _await_lock(database: Database) -> None:
    waiting = sa.text(
        "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = :name"
    )
    pause = threading.Event()
    while True:
        with database.read() as connection:
            if connection.scalar(waiting, {"name": database.engine.url.database}):
                return
        pause.wait(0.01)
