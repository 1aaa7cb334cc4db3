"""SQL storage: opens a database, brings its schema up to date, and keeps SQL off the event loop."""

import asyncio
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

import sqlalchemy as sa
from sqlalchemy import event

from peerloom.errors import (
    ConfigurationError,
    FailedPreconditionError,
    ResourceExhaustedError,
    UnavailableError,
)

P = ParamSpec("P")
T = TypeVar("T")


def open_database(url: str, migrations: str) -> sa.Engine:
    """Opens `url` and migrates it to the newest schema in the package folder `migrations`.

    SQLite runs in WAL mode and syncs each commit: what was acknowledged survives a power cut.
    Raises ConfigurationError for a URL that can't be used, UnavailableError when the database can't be
    opened or written, FailedPreconditionError when a newer version of Peerloom has migrated it.
    """
    engine = _create_engine(url)
    try:
        if engine.dialect.name == "sqlite":
            Path(engine.url.database or "").parent.mkdir(parents=True, exist_ok=True)
        _migrate(engine, migrations)
    except (OSError, sa.exc.SQLAlchemyError) as error:
        cause = getattr(error, "orig", None) or error
        raise UnavailableError(
            f"the database {engine_name(url)} can't be opened: {cause}. "
            "Check that its folder exists, can be written and has room.",
            reason="DATABASE_UNAVAILABLE",
        ) from error
    return engine


def _create_engine(url: str) -> sa.Engine:
    try:
        engine = sa.create_engine(url)
    except sa.exc.ArgumentError as error:
        raise ConfigurationError(
            f"the database URL {url.split(':')[0]}:... can't be used: {error}"
        ) from error
    except ImportError as error:
        raise ConfigurationError(
            f"the database {engine_name(url)} needs a driver: {error}. For PostgreSQL: "
            "pip install peerloom[postgresql]"
        ) from error
    if engine.dialect.name == "sqlite":
        event.listen(engine, "connect", _prepare_sqlite)
        event.listen(engine, "begin", lambda connection: connection.exec_driver_sql("BEGIN IMMEDIATE"))
    return engine


def _prepare_sqlite(connection: Any, _: object) -> None:
    connection.isolation_level = None  # SQLAlchemy, not the driver, begins transactions
    for pragma in ("journal_mode=WAL", "synchronous=FULL", "busy_timeout=5000", "foreign_keys=ON"):
        connection.execute(f"PRAGMA {pragma}")


def _migrate(engine: sa.Engine, migrations: str) -> None:
    from alembic import command  # a third of a second to import, and only needed here
    from alembic.config import Config
    from alembic.util import CommandError

    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent / "migrations"))
    config.set_main_option("version_locations", migrations)
    config.set_main_option("path_separator", "newline")
    with engine.begin() as connection:
        config.attributes["connection"] = connection
        try:
            command.upgrade(config, "head")
        except CommandError as error:
            raise FailedPreconditionError(
                f"the database {engine.url.render_as_string()} was migrated by a newer version of Peerloom "
                f"({error}). Start that version, or give another state folder.",
                reason="DATABASE_IS_NEWER",
            ) from error


def engine_name(url: str) -> str:
    """The URL without its password."""
    return str(sa.engine.make_url(url).render_as_string(hide_password=True))


@contextmanager
def storage_errors(where: str) -> Iterator[None]:
    """Turns a database's failures into our exceptions, so that the caller learns what to do."""
    try:
        yield
    except sa.exc.OperationalError as error:
        text = str(error.orig)
        if "full" in text:
            raise ResourceExhaustedError(
                f"{where} can't store this: its disk is full. Make room and try again.",
                reason="STORAGE_FULL",
            ) from error
        raise UnavailableError(f"{where} can't store this: {text}.", reason="STORAGE_UNAVAILABLE") from error


class SqlThread:
    """One thread that runs all of a service's SQL, so that the event loop never waits for a disk."""

    def __init__(self, engine: sa.Engine, service: str) -> None:
        self._engine = engine
        self._service = service
        self._executor = ThreadPoolExecutor(max_workers=1, thread_name_prefix="sql")

    async def run(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Runs a store's method. Raises ResourceExhaustedError or UnavailableError if storage fails."""

        def call() -> T:
            with storage_errors(f"the {self._service}'s database"):
                return function(*args, **kwargs)

        return await asyncio.get_running_loop().run_in_executor(self._executor, call)

    async def probe(self) -> None:
        """Raises unless the database answers; for the service's health."""

        def select_one() -> None:
            with self._engine.connect() as connection:
                connection.execute(sa.text("SELECT 1"))

        await self.run(select_one)

    def close(self) -> None:
        """Waits for what is under way, then closes the database."""
        self._executor.shutdown(wait=True)
        self._engine.dispose()
