"""Aim: tables change only under a lease and one process at a time, while older processes still run.

Method: a small service in two versions, of which the newer one has a migration more; and two services that
migrate one PostgreSQL at once; and a migration that goes on for as long as the test keeps a lock.
"""

import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest
import sqlalchemy as sa
from databases import new_database
from test_kit_database import FIRST, SECOND, columns, tables_of
from test_kit_standby import NOT_SERVING, SERVING, Service, running

from peerloom.errors import UnavailableError
from peerloom.kit.clock import SystemClock
from peerloom.kit.database import Database, connect_database
from peerloom.kit.lease import Lease
from peerloom.kit.lease_rules import LEASE_LOST, LeaseRow
from peerloom.kit.lease_table import read_lease, take_lease
from peerloom.kit.schema import lock_schema, migrate

LIMIT_S = 60.0
WAITING = sa.text(
    "SELECT count(*) FROM pg_locks JOIN pg_database ON pg_database.oid = pg_locks.database "
    "WHERE datname = current_database() AND locktype = 'advisory' AND NOT granted"
)


def write_migrations(folder: Path, **files: str) -> Path:
    folder.mkdir()
    for name, text in files.items():
        (folder / f"{name}.py").write_text(text)
    return folder


@pytest.mark.parametrize("kind", ["file", "postgresql"])
async def test_a_newer_version_that_stands_by_changes_nothing_until_it_leads(
    tmp_path: Path, kind: str
) -> None:
    older = write_migrations(tmp_path / "older", first=FIRST)
    newer = write_migrations(tmp_path / "newer", first=FIRST, second=SECOND)
    with new_database(kind, tmp_path) as url:
        leader, standby = Service(url, older), Service(url, newer)
        async with running(leader) as leading:
            await leader.becomes(SERVING)
            async with running(standby):
                await standby.becomes(NOT_SERVING)
                assert columns(leader.database) == ["text"]
                assert await leader.call() == "ada"
                with leader.database.write() as connection:
                    connection.execute(sa.text("INSERT INTO notes VALUES ('kept')"))
                leader.server.stop()
                await leading
                await standby.becomes(SERVING)
                assert columns(standby.database) == ["text", "size"]
                with standby.database.read() as connection:
                    rows = connection.execute(sa.text("SELECT text, size FROM notes")).all()
                assert [tuple(row) for row in rows] == [("kept", None)]


def open_leading(url: str, service: str) -> Database:
    return open_with_lease(url, service)[0]


def open_with_lease(url: str, service: str) -> tuple[Database, Lease]:
    database = connect_database(url, service)
    lease = Lease(database, SystemClock())
    assert lease.take_if_allowed().may_take
    return database, lease


def wait_until_locked_out(connection: sa.Connection, migrating: "Future[None]") -> None:
    """Returns once somebody waits for a lock that `connection` holds."""
    deadline_s = time.monotonic() + LIMIT_S
    while not connection.scalar(WAITING):  # each look is a query
        assert time.monotonic() < deadline_s
        assert not migrating.done(), "it did not wait"


def test_who_migrates_waits_for_who_migrates_already(tmp_path: Path) -> None:
    """Both services make a table at once: the second one's transaction begins after the first one's end."""
    ours = write_migrations(tmp_path / "ours", first=FIRST)
    other = FIRST.replace("tester_0001", "other_0001").replace("notes", "letters")
    theirs = write_migrations(tmp_path / "theirs", first=other)
    with new_database("postgresql", tmp_path) as url, ThreadPoolExecutor(1) as thread:
        first, second = open_leading(url, "tester"), open_leading(url, "other")
        with first.write() as connection:
            migrate(connection, "tester", str(ours))
            migrating = thread.submit(second.migrate, str(theirs))
            wait_until_locked_out(connection, migrating)
            assert not {"notes", "letters"} & tables_of(url)
        migrating.result(LIMIT_S)
        assert {"notes", "letters"} <= tables_of(url)
        first.close()
        second.close()


def test_a_first_lease_is_taken_once_others_have_migrated(tmp_path: Path) -> None:
    with new_database("postgresql", tmp_path) as url:
        first, second = open_leading(url, "tester"), connect_database(url, "other")
        lease = Lease(second, SystemClock())
        with first.write() as connection:
            lock_schema(connection)
            verdict = lease.take_if_allowed()
            assert (verdict.may_take, "changing the database's tables" in verdict.reason) == (False, True)
        assert lease.take_if_allowed().may_take
        first.close()
        second.close()


LOCKING = "    op.execute('SELECT pg_advisory_xact_lock(1)')"


@contextmanager
def held_up(database: Database, migrations: Path) -> Iterator["Future[None]"]:
    """A migration in the middle of which the block runs."""
    other = sa.create_engine(database.engine.url)
    with ThreadPoolExecutor(1) as thread:
        with other.begin() as connection:
            connection.execute(sa.text("SELECT pg_advisory_xact_lock(1)"))
            migrating = thread.submit(database.migrate, str(migrations))
            wait_until_locked_out(connection, migrating)
            yield migrating
        other.dispose()


@pytest.fixture
def slow(tmp_path: Path) -> Path:
    """The migrations of a service whose only one waits for a lock."""
    text = FIRST.replace("def upgrade():", f"def upgrade():\n{LOCKING}")
    return write_migrations(tmp_path / "slow", first=text)


def test_a_lease_is_kept_while_a_migration_takes_its_time(tmp_path: Path, slow: Path) -> None:
    """Also by other services' migrations, for which it waits: neither keeps the lease's own row."""
    with new_database("postgresql", tmp_path) as url, ThreadPoolExecutor(2) as threads:
        ours, lease = open_with_lease(url, "tester")
        theirs, other_lease = open_with_lease(url, "other")
        other = FIRST.replace("tester_0001", "other_0001").replace("notes", "letters")
        with held_up(ours, slow) as migrating:
            behind = threads.submit(theirs.migrate, str(write_migrations(tmp_path / "theirs", first=other)))
            assert threads.submit(lease.beat).result(LIMIT_S)
            assert threads.submit(other_lease.beat).result(LIMIT_S)
            assert not migrating.done()
            assert not behind.done()
        migrating.result(LIMIT_S)
        behind.result(LIMIT_S)
        assert {"notes", "letters"} <= tables_of(url)
        ours.close()
        theirs.close()


def test_who_loses_the_lease_while_it_migrates_changes_nothing(tmp_path: Path, slow: Path) -> None:
    with new_database("postgresql", tmp_path) as url:
        database, _ = open_with_lease(url, "tester")
        with held_up(database, slow) as migrating, database.engine.begin() as connection:
            seen = read_lease(connection, "tester")
            assert seen is not None
            taken = LeaseRow(seen.epoch + 1, 0, False, "another", seen.process)
            assert take_lease(connection, "tester", seen, taken)
        with pytest.raises(UnavailableError) as refused:
            migrating.result(LIMIT_S)
        assert refused.value.reason == LEASE_LOST
        assert "notes" not in tables_of(url)
        database.close()
