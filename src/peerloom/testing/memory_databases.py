"""The services' databases in memory: migrated once, then copied for each simulated disk."""

import sqlite3
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import sqlalchemy as sa
from sqlalchemy import event
from sqlalchemy.pool import StaticPool

from peerloom.kit.clock import SystemClock
from peerloom.kit.database import Database, connect_database
from peerloom.kit.lease import Lease
from peerloom.testing.simulated_processes import Disk
from peerloom.testing.virtual_loop import current_run

_COMPILED: dict[str, dict[Any, Any]] = {}  # statements, which are the same in all histories


def prepare(service: str, migrations: str) -> None:
    """Makes the empty database that each disk begins with."""
    _migrated(service, migrations)


@cache
def _migrated(service: str, migrations: str) -> bytes:
    with TemporaryDirectory(prefix="peerloom-simulation-") as folder:
        path = Path(folder) / "migrated.sqlite"
        database = connect_database(f"sqlite:///{path}", service)
        lease = Lease(database, SystemClock())
        lease.take_if_allowed()
        database.migrate(migrations)
        lease.give_up()
        database.close()
        connection = sqlite3.connect(path)
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        data = bytearray(connection.serialize())
        connection.close()
    data[18] = data[19] = 1  # a database in memory has no write-ahead log
    return bytes(data)


class MigratedDatabase(Database):
    """One that begins with the newest tables; it may stand for one on another machine."""

    def __init__(self, engine: sa.Engine, service: str, *, is_remote: bool) -> None:
        super().__init__(engine, service)
        self.is_remote = is_remote

    def migrate(self, migrations: str) -> None:
        """There is nothing to bring up to date."""


@cache
def _dialect() -> sa.Dialect:
    engine = sa.create_engine("sqlite://")
    with engine.connect():
        return engine.dialect


class KeptConnection(sqlite3.Connection):
    """A database in memory, which outlives the engines that were opened over it."""

    on_committed: Callable[[], None] = staticmethod(lambda: None)

    def commit(self) -> None:
        """As ever; whether the answer comes back is another matter."""
        super().commit()
        self.on_committed()

    def close(self) -> None:
        """What an engine calls at its end."""

    def forget(self) -> None:
        """The disk is gone."""
        super().close()


def open_in_memory(disk: Disk, service: str, migrations: str) -> sa.Engine:
    """An engine over what the disk holds of a service's database, which is empty at first."""
    if service not in disk.databases:
        connection = sqlite3.connect(
            ":memory:", isolation_level=None, factory=KeptConnection, check_same_thread=False
        )
        connection.deserialize(_migrated(service, migrations))
        connection.execute("PRAGMA foreign_keys=ON")
        connection.on_committed = partial(_lose_answer, disk)
        disk.databases[service] = connection
    pool = StaticPool(_opens(disk.databases[service]))
    engine = sa.Engine(pool, _dialect(), sa.make_url("sqlite://"))

    def begin(connection: sa.Connection) -> None:
        if not connection.get_execution_options().get("peerloom_reads_only"):
            disk.on_begin()
        if failing := disk.failing or _unreachable(disk):
            raise sa.exc.OperationalError("BEGIN", {}, sqlite3.OperationalError(failing))
        disk.databases[service].execute("BEGIN IMMEDIATE")

    event.listen(engine, "begin", begin)
    event.listen(engine, "commit", lambda connection: disk.on_commit())
    compiled = _COMPILED.setdefault(service, {})
    return engine.execution_options(compiled_cache=compiled)


def _unreachable(disk: Disk) -> str:
    """Why a request of the process that runs now doesn't reach its database; empty if it does."""
    run: Any = current_run.get()
    if not disk.database_host or run is None or not _is_cut(run, run.host, disk.database_host):
        return ""
    return "connection failed: the network is cut"


def _lose_answer(disk: Disk) -> None:
    run: Any = current_run.get()
    if disk.database_host and run is not None and _is_cut(run, disk.database_host, run.host):
        # So SQLAlchemy knows that the connection broke, here as it does of a server's.
        raise sqlite3.ProgrammingError("Cannot operate on a closed database.")


def _is_cut(run: Any, source: str, target: str) -> bool:
    return bool(run.world.network.link(source, target).cuts)


def _opens(connection: sqlite3.Connection) -> Callable[[], Any]:
    return lambda: connection
