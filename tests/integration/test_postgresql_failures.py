"""What a user is told when PostgreSQL can't do what it should: which database, where, and what to do.

Each failure is a real server's, in a database, and where needed a user and a tablespace, of the test's own.
"""

import os
import secrets
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import sqlalchemy as sa
from databases import new_database, open_held

from benchmarks.new_database import GIVEN
from peerloom.errors import (
    FailedPreconditionError,
    PeerloomError,
    ResourceExhaustedError,
    UnavailableError,
)
from peerloom.kit.database import Database, SqlThread, connect_database
from peerloom.kit.database_errors import CONNECTIONS
from peerloom.services import registry

MIGRATIONS = str(Path(registry.__file__).parent / "migrations")
TABLESPACE_BYTES = 2 * 1024 * 1024
pytestmark = pytest.mark.timeout(120)


@pytest.fixture
def url(tmp_path: Path) -> Iterator[str]:
    with new_database("postgresql", tmp_path) as url:
        yield url


@pytest.fixture
def database(url: str) -> Iterator[Database]:
    opened = open_held(url, "registry", MIGRATIONS)
    yield opened
    opened.close()


@contextmanager
def administrator() -> Iterator[sa.Connection]:
    """A connection to the server, beside the database that is tested."""
    server = sa.create_engine(os.environ[GIVEN], isolation_level="AUTOCOMMIT", poolclass=sa.NullPool)
    with server.connect() as connection:
        yield connection


def name_of(url: str) -> str:
    return sa.make_url(url).database or ""


def end_connections(url: str) -> None:
    """As a server that restarts or fails over does."""
    with administrator() as connection:
        query = sa.text("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = :name")
        connection.execute(query, {"name": name_of(url)})


def note(database: Database) -> None:
    with database.write() as connection:
        values = {"registry_id": secrets.token_hex(8), "created_s": 0.0}
        connection.execute(sa.text("INSERT INTO registry VALUES (:registry_id, :created_s)"), values)


def place(url: str) -> str:
    made = sa.make_url(url)
    return f"the registry's database {made.database} at {made.host}:{made.port}"


async def failing(database: Database, function: Callable[[Database], object]) -> PeerloomError:
    """The error of a call whose SQL runs as a service's does."""
    with SqlThread(database) as sql, pytest.raises(PeerloomError) as raised:
        await sql.run(function, database)
    return raised.value


async def test_connections_that_were_ended_are_replaced(database: Database, url: str) -> None:
    """Within a call that is told so, and between calls, where nobody notices."""

    def write_and_lose(database: Database) -> None:
        with database.write() as connection:
            end_connections(url)
            connection.execute(sa.text("SELECT 1"))

    error = await failing(database, write_and_lose)
    assert isinstance(error, UnavailableError)
    assert place(url) in error.message
    assert "connects anew by itself" in error.message
    note(database)
    end_connections(url)
    note(database)


async def test_a_database_that_became_read_only_is_left_for_the_one_that_writes(
    database: Database, url: str
) -> None:
    """As after a failover: connections made before stay with a server that only reads."""
    with administrator() as connection:
        connection.exec_driver_sql(f"ALTER DATABASE {name_of(url)} SET default_transaction_read_only = on")
    end_connections(url)
    error = await failing(database, note)
    assert (type(error), error.reason) == (UnavailableError, "DATABASE_READ_ONLY")
    assert place(url) in error.message
    assert "target_session_attrs=read-write" in error.message
    with administrator() as connection:
        connection.exec_driver_sql(f"ALTER DATABASE {name_of(url)} RESET default_transaction_read_only")
    note(database)


def test_a_database_that_is_read_only_at_the_start_is_named(url: str) -> None:
    with administrator() as connection:
        connection.exec_driver_sql(f"ALTER DATABASE {name_of(url)} SET default_transaction_read_only = on")
    with pytest.raises(UnavailableError, match="can only be read") as raised:
        connect_database(url, "registry")
    assert name_of(url) in raised.value.message


@pytest.mark.parametrize("reason", ["DATABASE_CONNECTIONS", "DATABASE_NOT_ALLOWED"])
def test_a_user_who_may_not_is_told_what_is_missing(url: str, reason: str) -> None:
    user, limit = f"peerloom_{secrets.token_hex(6)}", 0 if reason == "DATABASE_CONNECTIONS" else 5
    with administrator() as connection:
        connection.exec_driver_sql(f"CREATE ROLE {user} LOGIN CONNECTION LIMIT {limit}")
        try:
            with pytest.raises(UnavailableError) as raised:
                connect_database(sa.make_url(url).set(username=user).render_as_string(), "registry")
        finally:
            connection.exec_driver_sql(f"DROP ROLE {user}")
    assert raised.value.reason == reason
    assert name_of(url) in raised.value.message


def test_a_process_takes_no_more_connections_than_it_says(database: Database, url: str) -> None:
    opened = [database.engine.connect() for _ in range(CONNECTIONS)]
    assert database.engine.pool.checkedout() == CONNECTIONS  # type: ignore[attr-defined]  # a QueuePool
    database.engine.pool._timeout = 0.0  # type: ignore[attr-defined]  # how long the next one would wait
    with pytest.raises(sa.exc.TimeoutError):
        database.engine.connect()
    for connection in opened:
        connection.close()


def test_a_newer_versions_database_says_what_to_start(database: Database, url: str) -> None:
    with database.write() as connection:
        connection.execute(sa.text("UPDATE alembic_version_registry SET version_num = 'registry_9999'"))
    with pytest.raises(FailedPreconditionError, match="newer version") as raised:
        database.migrate(MIGRATIONS)
    assert name_of(url) in raised.value.message
    assert "another database" in raised.value.message


@pytest.fixture
def small_disk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A disk of a few megabytes, which PostgreSQL on this machine can use."""
    if os.geteuid() != 0 or sa.make_url(os.environ.get(GIVEN, "sqlite://")).host != "127.0.0.1":
        pytest.skip("needs root, and PostgreSQL on this machine: a small disk is mounted for it")
    folder = Path("/var/tmp") / f"peerloom-{secrets.token_hex(6)}"
    folder.mkdir()
    options = f"size={TABLESPACE_BYTES},uid=postgres,mode=700"
    try:
        subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", folder], check=True)
        yield folder
        subprocess.run(["umount", folder], check=True)
    finally:
        shutil.rmtree(folder)


async def test_a_full_disk_says_so_and_the_service_goes_on_once_there_is_room(
    database: Database, url: str, small_disk: Path
) -> None:
    space = f"peerloom_{secrets.token_hex(6)}"

    def fill(database: Database) -> None:
        with database.write() as connection:
            query = "INSERT INTO registry SELECT 'n' || n, 0 FROM generate_series(1, 100000) AS n"
            connection.exec_driver_sql(query)

    with administrator() as connection:
        connection.exec_driver_sql(f"CREATE TABLESPACE {space} LOCATION '{small_disk}'")
    try:
        with database.write() as connection:
            connection.exec_driver_sql(f"ALTER TABLE registry SET TABLESPACE {space}")
        error = await failing(database, fill)
        assert (type(error), error.reason) == (ResourceExhaustedError, "STORAGE_FULL")
        assert error.message.startswith(f"{place(url)} can't store or read this: its disk is full")
        with database.write() as connection:
            assert connection.scalar(sa.text("SELECT count(*) FROM registry")) == 0, "nothing was changed"
            connection.exec_driver_sql("TRUNCATE registry")
        note(database)
    finally:
        with database.write() as connection:
            connection.exec_driver_sql("ALTER TABLE registry SET TABLESPACE pg_default")
        with administrator() as connection:
            connection.exec_driver_sql(f"DROP TABLESPACE {space}")
