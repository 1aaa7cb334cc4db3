"""SQL storage on a real disk: durability settings, migrations, and what a user is told when it fails."""

import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import sqlalchemy as sa

from peerloom.errors import (
    ConfigurationError,
    FailedPreconditionError,
    ResourceExhaustedError,
    UnavailableError,
)
from peerloom.kit.database import SqlThread, engine_name, open_database

FIRST = '''
"""Notes."""
import sqlalchemy as sa
from alembic import op
revision, down_revision = "0001", None

def upgrade():
    op.create_table("notes", sa.Column("text", sa.String, primary_key=True))

def downgrade():
    op.drop_table("notes")
'''
SECOND = '''
"""Their size."""
import sqlalchemy as sa
from alembic import op
revision, down_revision = "0002", "0001"

def upgrade():
    op.add_column("notes", sa.Column("size", sa.Integer))

def downgrade():
    op.drop_column("notes", "size")
'''
BROKEN = '''
"""Fails half way."""
from alembic import op
revision, down_revision = "0002", "0001"

def upgrade():
    op.execute("CREATE TABLE half (x)")
    op.execute("CREATE TABLE half (x)")
'''


@pytest.fixture
def migrations(tmp_path: Path) -> Path:
    folder = tmp_path / "migrations"
    folder.mkdir()
    (folder / "0001_first.py").write_text(FIRST)
    return folder


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/state/tester.sqlite"


@pytest.fixture
def engine(url: str, migrations: Path) -> Iterator[sa.Engine]:
    opened = open_database(url, str(migrations))
    yield opened
    opened.dispose()


def columns(engine: sa.Engine) -> list[str]:
    return [column["name"] for column in sa.inspect(engine).get_columns("notes")]


def test_every_connection_keeps_what_it_acknowledged_through_a_power_cut(engine: sa.Engine) -> None:
    """Write-ahead log and a sync at each commit, on the second connection as on the first."""
    with engine.connect() as first, engine.connect() as second:
        for connection in (first, second):
            pragmas = {
                name: connection.exec_driver_sql(f"PRAGMA {name}").scalar_one()
                for name in ("journal_mode", "synchronous", "foreign_keys", "busy_timeout")
            }
            assert pragmas == {
                "journal_mode": "wal",
                "synchronous": 2,
                "foreign_keys": 1,
                "busy_timeout": 5000,
            }
            connection.rollback()


def test_the_folder_is_made_and_data_survive_reopening(url: str, migrations: Path, engine: sa.Engine) -> None:
    with engine.begin() as connection:
        connection.execute(sa.text("INSERT INTO notes VALUES ('kept')"))
    engine.dispose()
    again = open_database(url, str(migrations))
    with again.connect() as connection:
        assert connection.execute(sa.text("SELECT text FROM notes")).scalars().all() == ["kept"]
    again.dispose()


def test_a_newer_schema_is_applied_once_to_what_is_there(
    url: str, migrations: Path, engine: sa.Engine
) -> None:
    assert columns(engine) == ["text"]
    engine.dispose()
    (migrations / "0002_second.py").write_text(SECOND)
    for _ in range(2):
        newer = open_database(url, str(migrations))
        assert columns(newer) == ["text", "size"]
        newer.dispose()


def test_a_migration_that_fails_leaves_nothing_behind(url: str, migrations: Path, engine: sa.Engine) -> None:
    engine.dispose()
    (migrations / "0002_broken.py").write_text(BROKEN)
    with pytest.raises(UnavailableError, match="half"):
        open_database(url, str(migrations))
    (migrations / "0002_broken.py").unlink()
    older = open_database(url, str(migrations))
    assert sa.inspect(older).get_table_names() == ["alembic_version", "notes"]
    older.dispose()


def test_a_database_of_a_newer_peerloom_is_left_alone(url: str, migrations: Path, engine: sa.Engine) -> None:
    engine.dispose()
    (migrations / "0002_second.py").write_text(SECOND)
    open_database(url, str(migrations)).dispose()
    (migrations / "0002_second.py").unlink()
    with pytest.raises(FailedPreconditionError, match="newer"):
        open_database(url, str(migrations))


def test_a_file_in_place_of_the_folder_is_named(tmp_path: Path, migrations: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(UnavailableError, match=r"file/x\.sqlite can't be opened"):
        open_database(f"sqlite:///{tmp_path}/file/x.sqlite", str(migrations))


def test_a_file_that_is_no_database_is_named(tmp_path: Path, migrations: Path) -> None:
    (tmp_path / "x.sqlite").write_text(
        "no database, but text that is long enough to be read as a header " * 20
    )
    with pytest.raises(UnavailableError, match="not a database"):
        open_database(f"sqlite:///{tmp_path}/x.sqlite", str(migrations))


def test_a_folder_that_cannot_be_written_is_named(migrations: Path) -> None:
    """The kernel's own tables: not even root can make a file there."""
    with pytest.raises(UnavailableError, match="/proc/x"):
        open_database("sqlite:////proc/x/y.sqlite", str(migrations))


@pytest.mark.parametrize("url", ["garbage", "nosuchdatabase://host/x", "mysql://user:secret@127.0.0.1:1/x"])
def test_a_url_that_cannot_be_used_is_named_without_its_password(url: str, migrations: Path) -> None:
    with pytest.raises(ConfigurationError) as raised:
        open_database(url, str(migrations))
    assert url.split(":")[0] in raised.value.message
    assert "secret" not in raised.value.message


def test_a_name_hides_the_password() -> None:
    assert engine_name("postgresql://me:secret@host/db") == "postgresql://me:***@host/db"


async def test_sql_runs_on_one_thread_that_is_not_the_loops(engine: sa.Engine) -> None:
    thread = SqlThread(engine, "tester")
    first, second = await asyncio.gather(*(thread.run(threading.get_ident) for _ in range(2)))
    assert first == second != threading.get_ident()
    thread.close()


async def test_a_full_disk_says_so_and_loses_nothing(engine: sa.Engine) -> None:
    """SQLite gives the same error for a file that may not grow as for a disk that is full."""

    def fill() -> None:
        with engine.begin() as connection:
            connection.execute(sa.text("INSERT INTO notes VALUES ('before')"))
        with engine.begin() as connection:
            connection.exec_driver_sql("PRAGMA max_page_count=1")
            connection.execute(sa.text("INSERT INTO notes VALUES (:text)"), {"text": "x" * 100_000})

    thread = SqlThread(engine, "tester")
    with pytest.raises(ResourceExhaustedError, match="the tester's database can't store this") as raised:
        await thread.run(fill)
    assert raised.value.reason == "STORAGE_FULL"
    await thread.probe()
    thread.close()
    with engine.connect() as connection:
        assert connection.execute(sa.text("SELECT text FROM notes")).scalars().all() == ["before"]


async def test_a_database_that_fails_otherwise_is_unavailable(engine: sa.Engine) -> None:
    def write_read_only() -> None:
        with engine.begin() as connection:
            connection.exec_driver_sql("PRAGMA query_only=ON")
            connection.execute(sa.text("INSERT INTO notes VALUES ('x')"))

    thread = SqlThread(engine, "tester")
    with pytest.raises(UnavailableError, match="readonly"):
        await thread.run(write_read_only)
    thread.close()


async def test_our_own_mistakes_are_not_taken_for_the_disks(engine: sa.Engine) -> None:
    def twice() -> None:
        with engine.begin() as connection:
            for _ in range(2):
                connection.execute(sa.text("INSERT INTO notes VALUES ('same')"))

    thread = SqlThread(engine, "tester")
    with pytest.raises(sa.exc.IntegrityError):
        await thread.run(twice)
    thread.close()
