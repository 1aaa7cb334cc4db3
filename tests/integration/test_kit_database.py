"""SQL storage on a real disk: durability settings, migrations, and what a user is told when it fails."""

import asyncio
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
import sqlalchemy as sa
from databases import differences, held, new_database

from peerloom.errors import (
    ConfigurationError,
    FailedPreconditionError,
    ResourceExhaustedError,
    UnavailableError,
)
from peerloom.kit.clock import ManualClock
from peerloom.kit.database import Database, SqlThread, connect_database
from peerloom.kit.database_engine import engine_name
from peerloom.kit.lease import Lease
from peerloom.services import registry, selector, trainer
from peerloom.services.registry import tables as registry_tables
from peerloom.services.selector import tables as selector_tables
from peerloom.services.trainer import tables as trainer_tables

LEASES = ("service_leases", "service_systems")
FIRST = '''
"""Notes."""
import sqlalchemy as sa
from alembic import op
revision, down_revision = "tester_0001", None

def upgrade():
    op.create_table("notes", sa.Column("text", sa.String, primary_key=True))

def downgrade():
    op.drop_table("notes")
'''
SECOND = '''
"""Their size."""
import sqlalchemy as sa
from alembic import op
revision, down_revision = "tester_0002", "tester_0001"

def upgrade():
    op.add_column("notes", sa.Column("size", sa.Integer))

def downgrade():
    op.drop_column("notes", "size")
'''
BROKEN = '''
"""Fails half way."""
from alembic import op
revision, down_revision = "tester_0002", "tester_0001"

def upgrade():
    op.execute("CREATE TABLE half (x INTEGER)")
    op.execute("half A TABLE")
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


@pytest.fixture(params=["file", "postgresql"])
def any_url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    with new_database(request.param, tmp_path) as url:
        yield url


@pytest.fixture
def database(url: str, migrations: Path) -> Iterator[Database]:
    with held(url, "tester", migrations) as opened:
        yield opened


def columns(database: Database) -> list[str]:
    return [column["name"] for column in sa.inspect(database.engine).get_columns("notes")]


def tables_of(url: str) -> set[str]:
    engine = sa.create_engine(url)
    try:
        return set(sa.inspect(engine).get_table_names())
    finally:
        engine.dispose()


def test_every_connection_keeps_what_it_acknowledged_through_a_power_cut(database: Database) -> None:
    """Write-ahead log and a sync at each commit, on the second connection as on the first."""
    with database.read() as first, database.read() as second:
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


def test_who_reads_does_not_keep_others_from_writing(any_url: str, migrations: Path) -> None:
    with held(any_url, "tester", migrations) as database, database.read() as reader:
        assert reader.scalar(sa.text("SELECT COUNT(*) FROM notes")) == 0
        with database.write() as writer:
            writer.execute(sa.text("INSERT INTO notes VALUES ('new')"))
    with held(any_url, "tester", migrations) as database, database.read() as reader:
        assert reader.scalar(sa.text("SELECT text FROM notes")) == "new"


def test_a_write_that_fails_leaves_nothing(any_url: str, migrations: Path) -> None:
    with held(any_url, "tester", migrations) as database:
        with pytest.raises(sa.exc.IntegrityError), database.write() as connection:
            connection.execute(sa.text("INSERT INTO notes VALUES ('same'), ('other'), ('same')"))
        with database.read() as reader:
            assert reader.scalar(sa.text("SELECT COUNT(*) FROM notes")) == 0


def test_the_folder_is_made_and_data_survive_reopening(url: str, migrations: Path) -> None:
    with held(url, "tester", migrations) as database, database.write() as connection:
        connection.execute(sa.text("INSERT INTO notes VALUES ('kept')"))
    with held(url, "tester", migrations) as again, again.read() as connection:
        assert connection.execute(sa.text("SELECT text FROM notes")).scalars().all() == ["kept"]


def test_a_newer_schema_is_applied_once_to_what_is_there(any_url: str, migrations: Path) -> None:
    with held(any_url, "tester", migrations) as database:
        assert columns(database) == ["text"]
    (migrations / "0002_second.py").write_text(SECOND)
    for _ in range(2):
        with held(any_url, "tester", migrations) as newer:
            assert columns(newer) == ["text", "size"]


def test_a_migration_that_fails_leaves_nothing_behind(any_url: str, migrations: Path) -> None:
    with held(any_url, "tester", migrations):
        pass
    (migrations / "0002_broken.py").write_text(BROKEN)
    with pytest.raises(UnavailableError, match="half"), held(any_url, "tester", migrations):
        pass
    (migrations / "0002_broken.py").unlink()
    with held(any_url, "tester", migrations):
        assert tables_of(any_url) == {*LEASES, "alembic_version_tester", "notes"}


def test_a_database_of_a_newer_peerloom_is_left_alone(any_url: str, migrations: Path) -> None:
    (migrations / "0002_second.py").write_text(SECOND)
    with held(any_url, "tester", migrations):
        pass
    (migrations / "0002_second.py").unlink()
    with pytest.raises(FailedPreconditionError, match="newer"), held(any_url, "tester", migrations):
        pass


def make_former(url: str, version: str) -> None:
    """A database as it was when all services wrote their version into one table."""
    engine = sa.create_engine(url)
    with engine.begin() as connection:
        connection.execute(sa.text("CREATE TABLE alembic_version (version_num VARCHAR(32) PRIMARY KEY)"))
        connection.execute(sa.text("INSERT INTO alembic_version VALUES (:version)"), {"version": version})
        connection.execute(sa.text("CREATE TABLE notes (text VARCHAR PRIMARY KEY)"))
    engine.dispose()


def test_a_former_database_of_this_service_is_taken_over(any_url: str, migrations: Path) -> None:
    make_former(any_url, "tester_0001")
    (migrations / "0002_second.py").write_text(SECOND)
    with held(any_url, "tester", migrations) as database:
        assert columns(database) == ["text", "size"]
    assert tables_of(any_url) == {*LEASES, "alembic_version_tester", "notes"}


def test_a_former_database_of_another_service_keeps_its_version(any_url: str, tmp_path: Path) -> None:
    make_former(any_url, "tester_0001")
    folder = tmp_path / "another"
    folder.mkdir()
    (folder / "0001_first.py").write_text(FIRST.replace("tester", "another").replace("notes", "other"))
    with held(any_url, "another", folder):
        pass
    known = {*LEASES, "alembic_version", "alembic_version_another", "notes", "other"}
    assert tables_of(any_url) == known


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0)])
def test_all_services_share_one_database(any_url: str, order: tuple[int, ...]) -> None:
    services = [
        ("registry", registry.__file__, registry_tables.metadata),
        ("selector", selector.__file__, selector_tables.metadata),
        ("trainer", trainer.__file__, trainer_tables.metadata),
    ]
    for number in order:
        service, file, _ = services[number]
        with held(any_url, service, Path(file).parent / "migrations"):
            pass
    for service, file, metadata in services:
        folder = Path(file).parent / "migrations"
        with held(any_url, service, folder) as database, database.read() as connection:
            assert differences(connection, metadata) == []


@pytest.mark.parametrize("any_url", ["postgresql"], indirect=True)
def test_on_postgresql_a_read_holds_no_transaction_open(any_url: str) -> None:
    """It would be ended where a slow machine pauses for as long as a frozen holder of the lease may."""
    database = connect_database(any_url, "tester")
    state_of = sa.text("SELECT state FROM pg_stat_activity WHERE pid = :pid")
    with database.read() as reading, database.read() as looking:
        pid = reading.scalar(sa.text("SELECT pg_backend_pid()"))
        assert looking.scalar(state_of, {"pid": pid}) == "idle"
    database.close()


def test_a_postgresql_that_is_away_is_named_with_its_place() -> None:
    with pytest.raises(UnavailableError, match=r"PostgreSQL runs at 127\.0\.0\.1:1 and") as raised:
        connect_database("postgresql+psycopg://me:secret@127.0.0.1:1/jobs", "tester")
    assert "the user me may connect to the database jobs" in raised.value.message
    assert "secret" not in raised.value.message


def test_a_file_in_place_of_the_folder_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(UnavailableError, match=r"file/x\.sqlite can't be opened"):
        connect_database(f"sqlite:///{tmp_path}/file/x.sqlite", "tester")


def test_a_file_that_is_no_database_is_named(tmp_path: Path) -> None:
    (tmp_path / "x.sqlite").write_text(
        "no database, but text that is long enough to be read as a header " * 20
    )
    with pytest.raises(UnavailableError, match="not a database"):
        connect_database(f"sqlite:///{tmp_path}/x.sqlite", "tester")


def test_a_folder_that_cannot_be_written_is_named() -> None:
    """The kernel's own tables: not even root can make a file there."""
    with pytest.raises(UnavailableError, match="/proc/x"):
        connect_database("sqlite:////proc/x/y.sqlite", "tester")


async def take_and_migrate(url: str) -> None:
    """What a service does first."""
    with closing(connect_database(url, "registry")) as database:
        await Lease(database, ManualClock()).try_to_take()
        database.migrate(str(Path(registry.__file__).parent / "migrations"))


@pytest.mark.parametrize("table", ["nodes", "service_leases"])
async def test_tables_of_another_product_are_left_alone(any_url: str, table: str) -> None:
    made = sa.create_engine(any_url, poolclass=sa.NullPool)
    with made.begin() as connection:
        connection.exec_driver_sql(f"CREATE TABLE {table} (theirs TEXT)")
        connection.exec_driver_sql("CREATE TABLE alembic_version (version_num VARCHAR(32) PRIMARY KEY)")
        connection.exec_driver_sql("INSERT INTO alembic_version VALUES ('4d3c21')")
    with pytest.raises(FailedPreconditionError) as raised:
        await take_and_migrate(any_url)
    assert raised.value.reason == "DATABASE_OF_ANOTHER"
    assert str(sa.make_url(any_url).database) in raised.value.message
    assert "one that is empty" in raised.value.message
    with made.connect() as connection:
        assert connection.scalar(sa.text("SELECT version_num FROM alembic_version")) == "4d3c21"
        assert [column["name"] for column in sa.inspect(connection).get_columns(table)] == ["theirs"]


@pytest.mark.parametrize("url", ["garbage", "nosuchdatabase://host/x", "mysql://user:secret@127.0.0.1:1/x"])
def test_a_url_that_cannot_be_used_is_named_without_its_password(url: str) -> None:
    with pytest.raises(ConfigurationError) as raised:
        connect_database(url, "tester")
    assert url.split(":")[0] in raised.value.message
    assert "secret" not in raised.value.message


def test_a_name_hides_the_password() -> None:
    assert engine_name("postgresql://me:secret@host/db") == "postgresql://me:***@host/db"


async def test_sql_runs_on_one_thread_that_is_not_the_loops(database: Database) -> None:
    thread = SqlThread(database)
    first, second = await asyncio.gather(*(thread.run(threading.get_ident) for _ in range(2)))
    assert first == second != threading.get_ident()
    thread.close()


async def test_a_full_disk_says_so_and_loses_nothing(database: Database) -> None:
    """SQLite gives the same error for a file that may not grow as for a disk that is full."""

    def fill() -> None:
        with database.write() as connection:
            connection.execute(sa.text("INSERT INTO notes VALUES ('before')"))
        with database.write() as connection:
            connection.exec_driver_sql("PRAGMA max_page_count=1")
            connection.execute(sa.text("INSERT INTO notes VALUES (:text)"), {"text": "x" * 100_000})

    thread = SqlThread(database)
    with pytest.raises(
        ResourceExhaustedError, match=r"the tester's database .*tester\.sqlite can't"
    ) as raised:
        await thread.run(fill)
    assert raised.value.reason == "STORAGE_FULL"
    await thread.probe()
    thread.close()
    with database.read() as connection:
        assert connection.execute(sa.text("SELECT text FROM notes")).scalars().all() == ["before"]


async def test_a_database_that_fails_otherwise_is_unavailable(database: Database) -> None:
    def write_read_only() -> None:
        with database.write() as connection:
            connection.exec_driver_sql("PRAGMA query_only=ON")
            connection.execute(sa.text("INSERT INTO notes VALUES ('x')"))

    thread = SqlThread(database)
    with pytest.raises(UnavailableError, match="readonly"):
        await thread.run(write_read_only)
    database.engine.dispose()  # the connection that only reads
    thread.close()


async def test_our_own_mistakes_are_not_taken_for_the_disks(database: Database) -> None:
    def twice() -> None:
        with database.write() as connection:
            for _ in range(2):
                connection.execute(sa.text("INSERT INTO notes VALUES ('same')"))

    thread = SqlThread(database)
    with pytest.raises(sa.exc.IntegrityError):
        await thread.run(twice)
    thread.close()
