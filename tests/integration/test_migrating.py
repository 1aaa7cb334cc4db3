"""Aim: tables change only under a lease and one process at a time, while older processes still run.

Method: a small service in two versions, of which the newer one has a migration more; and two services that
migrate one PostgreSQL at once.
"""

import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import sqlalchemy as sa
from databases import new_database
from test_kit_database import FIRST, SECOND, columns, tables_of
from test_kit_standby import NOT_SERVING, SERVING, Service, running

from peerloom.kit.clock import SystemClock
from peerloom.kit.database import Database, connect_database
from peerloom.kit.lease import Lease
from peerloom.kit.schema import migrate

LIMIT_S = 60.0
WAITING = sa.text("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted")


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
    database = connect_database(url, service)
    assert Lease(database, SystemClock()).take_if_allowed().may_take
    return database


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
            deadline_s = time.monotonic() + LIMIT_S
            while not connection.scalar(WAITING):  # each look is a query
                assert time.monotonic() < deadline_s
                assert not migrating.done(), "it did not wait"
            assert not {"notes", "letters"} & tables_of(url)
        migrating.result(LIMIT_S)
        assert {"notes", "letters"} <= tables_of(url)
        first.close()
        second.close()
