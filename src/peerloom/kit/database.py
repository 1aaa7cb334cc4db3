"""SQL storage: opens a database, brings its schema up to date, and keeps SQL off the event loop."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

import sqlalchemy as sa

from peerloom.errors import UnavailableError
from peerloom.kit.database_engine import READS_ONLY, create_engine
from peerloom.kit.database_errors import (
    explain,
    is_outcome_unknown,
    is_specific,
    is_storage_failure,
    outcome_unknown,
    place_of,
    words_of,
)
from peerloom.kit.lease_rules import LEASE_LOST, LEASE_S, NO_EPOCH
from peerloom.kit.lease_table import create_leases, epoch_for_writing, move_beat
from peerloom.kit.open_connections import OpenConnections
from peerloom.kit.schema import migrate
from peerloom.kit.thread_pools import SQL, named_pool

P = ParamSpec("P")
T = TypeVar("T")


@contextmanager
def storage_errors(where: str) -> Iterator[None]:
    """Turns the failures of the database that `where` names into our exceptions: what to do about them."""
    try:
        yield
    except sa.exc.DBAPIError as error:
        if not is_storage_failure(error):
            raise
        raise explain(error, where, "store or read this") from error


class Database:
    """The SQL storage of one service: read by everybody, written by whoever holds the service's lease.

    Several services may share what `engine` opens. All methods block: call them through SqlThread.
    """

    def __init__(self, engine: sa.Engine, service: str) -> None:
        self.engine = engine
        self.service = service
        self.name = f"the {service}'s database {place_of(engine.url)}"
        self.epoch = NO_EPOCH
        self.is_remote = engine.dialect.name != "sqlite"  # it may be lost to one process and not to another
        self._connections = OpenConnections(engine)

    def admit(self, epoch: int) -> None:
        """From now on this process writes as the holder of the lease's `epoch`; NO_EPOCH: not at all."""
        self.epoch = epoch

    def let_go(self) -> None:
        """From now on this process writes nothing, and what it waits for in a remote database fails."""
        self.admit(NO_EPOCH)
        self._connections.break_off()

    @contextmanager
    def read(self) -> Iterator[sa.Connection]:
        """A connection for queries; it must not write."""
        options: dict[str, Any] = {READS_ONLY: True}
        if self.engine.dialect.name == "postgresql":
            # Each statement sees its own moment there either way, and no transaction is left to be ended.
            options["isolation_level"] = "AUTOCOMMIT"
        with self.engine.connect().execution_options(**options) as connection:
            yield connection

    @contextmanager
    def write(self) -> Iterator[sa.Connection]:
        """A connection whose changes are all made at the end, or none if it is left by an exception.

        Raises UnavailableError: LEASE_LOST when this process doesn't hold the lease, or no longer;
        OUTCOME_UNKNOWN when the connection broke before the commit's answer came.
        """
        self._check_may_write()
        with self.engine.connect() as connection, connection.begin() as transaction:
            self._check_holds(connection)
            yield connection
            try:
                transaction.commit()
            except sa.exc.DBAPIError as error:
                if is_outcome_unknown(error):
                    raise outcome_unknown(self.name, error) from error
                raise

    def settle(self) -> None:
        """Returns once no earlier write of this process can take effect any more, so that a read tells.

        A commit whose connection broke may still be under way in the server: it keeps the lease's row, which
        this changes. Raises UnavailableError (LEASE_LOST) when this process doesn't hold the lease.
        """
        self._check_may_write()
        with self.engine.begin() as connection:
            if not move_beat(connection, self.service, self.epoch):
                raise self.deposed()

    def migrate(self, migrations: str) -> None:
        """Brings the service's tables to the newest schema in the package folder `migrations`.

        Raises FailedPreconditionError when a newer version of Peerloom has migrated the database, or another
        program's tables are in the way, and UnavailableError when it can't be done, or not any more since
        another process holds the lease (LEASE_LOST).
        """
        self._check_may_write()
        with _opening(self.engine), self.engine.begin() as connection:
            migrate(connection, self.service, migrations)
            # At the end: it keeps the lease's row, which the beat changes while this and others migrate.
            self._check_holds(connection)

    def deposed(self) -> UnavailableError:
        """What a process is told that may not write."""
        return UnavailableError(
            f"This process does not hold the lease of the {self.service}'s database, so it writes nothing.",
            reason=LEASE_LOST,
        )

    def lapsed(self) -> UnavailableError:
        """What a process is told, and tells its callers, that must let go of the lease."""
        return UnavailableError(
            f"This process does not hold the lease of {self.name} any more: it could not renew it for "
            f"{LEASE_S:g} s, so another may take it. See whether the database answers from here; start this "
            "process again, unless what keeps it running does.",
            reason=LEASE_LOST,
        )

    def _check_may_write(self) -> None:
        # Also before connecting: to a database that doesn't answer that takes seconds.
        if self.epoch == NO_EPOCH:
            raise self.deposed()

    def _check_holds(self, connection: sa.Connection) -> None:
        # What is found holds until the transaction's end.
        if self.epoch == NO_EPOCH or epoch_for_writing(connection, self.service) != self.epoch:
            raise self.deposed()

    def close(self) -> None:
        """Closes all connections."""
        self.engine.dispose()


def connect_database(url: str, service: str) -> Database:
    """Opens `url` for a service; makes the table of leases, nothing else.

    SQLite runs in WAL mode and syncs each commit: what was acknowledged survives a power cut.
    Raises ConfigurationError for a URL that can't be used, UnavailableError when the database can't be
    opened or written, FailedPreconditionError when another program's tables are in the way.
    """
    engine = create_engine(url, service)
    database = Database(engine, service)  # before the first connection, which it is to know
    with _opening(engine):
        if engine.dialect.name == "sqlite":
            Path(engine.url.database or "").parent.mkdir(parents=True, exist_ok=True)
        create_leases(engine)
    return database


@contextmanager
def _opening(engine: sa.Engine) -> Iterator[None]:
    try:
        yield
    except (OSError, sa.exc.SQLAlchemyError) as error:
        engine.dispose()
        name = f"the database {engine.url.render_as_string()}"
        if isinstance(error, sa.exc.DBAPIError) and is_specific(error):
            raise explain(error, name, "be opened") from error
        raise UnavailableError(
            f"{name} can't be opened: {words_of(error)}. {_what_to_check(engine.url)}",
            reason="DATABASE_UNAVAILABLE",
        ) from error


def _what_to_check(url: sa.URL) -> str:
    if url.get_backend_name() == "sqlite":
        return "Check that its folder exists, can be written and has room."
    place = f"{url.host or 'localhost'}:{url.port or 5432}"
    return (
        f"Check that PostgreSQL runs at {place} and can be reached from here, and that the user "
        f"{url.username or '(none given)'} may connect to the database {url.database or '(none given)'} and "
        "make tables in it."
    )


class SqlThread:
    """One thread that runs all of a service's SQL, so that the event loop never waits for a disk."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._executor = named_pool(SQL, 1)

    async def run(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Runs a store's method. Raises ResourceExhaustedError or UnavailableError if storage fails."""

        def call() -> T:
            with storage_errors(self._database.name):
                return function(*args, **kwargs)

        return await asyncio.get_running_loop().run_in_executor(self._executor, call)

    async def probe(self) -> None:
        """Raises unless the database answers; for the service's health."""

        def select_one() -> None:
            with self._database.read() as connection:
                connection.execute(sa.text("SELECT 1"))

        await self.run(select_one)

    def close(self) -> None:
        """Waits for what is under way."""
        self._executor.shutdown(wait=True)

    def __enter__(self) -> "SqlThread":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
