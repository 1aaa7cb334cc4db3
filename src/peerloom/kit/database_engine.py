"""Engines of SQL databases: how their connections and transactions are set, for SQLite and PostgreSQL."""

from functools import partial
from typing import Any

import sqlalchemy as sa
from sqlalchemy import event

from peerloom.errors import ConfigurationError
from peerloom.kit.database_errors import CONNECTIONS, READ_ONLY
from peerloom.kit.lease_table import session_name
from peerloom.kit.liveness import this_process

READS_ONLY = "peerloom_reads_only"  # the option of a connection's execution that says so
# Of a transaction that writes, on PostgreSQL; who takes a frozen process's lease doesn't wait for it.
_IDLE_LIMIT = "60s"
# So that a server that is gone without a word is noticed: connecting and waiting for an answer end.
_PATIENCE = {
    "connect_timeout": 5,
    "keepalives_idle": 5,
    "keepalives_interval": 2,
    "keepalives_count": 3,
    "tcp_user_timeout": 10_000,
}
_POOL_WAIT_S = 30.0


def create_engine(url: str, service: str) -> sa.Engine:
    """An engine whose connections are as durable, and whose transactions as strict, as ours must be."""
    try:
        engine = sa.create_engine(url, pool_pre_ping=True, **_options(url))
    except sa.exc.ArgumentError as error:
        raise ConfigurationError(
            f"the database URL {url.split(':')[0]}:... can't be used: {error}"
        ) from error
    except ImportError as error:
        raise ConfigurationError(
            f"the database {engine_name(url)} needs a driver: {error}. For PostgreSQL: "
            "pip install 'peerloom[postgresql]'"
        ) from error
    if engine.dialect.name == "sqlite":
        event.listen(engine, "connect", _prepare_sqlite)
        event.listen(engine, "begin", _begin_sqlite)
    if engine.dialect.name == "postgresql":
        name = session_name(service, this_process().text())
        event.listen(engine, "connect", partial(_prepare_postgresql, name))
        event.listen(engine, "handle_error", _leave_what_only_reads)
    return engine


def _options(url: str) -> dict[str, Any]:
    made = sa.make_url(url)
    if made.get_backend_name() != "postgresql":
        return {}
    given = {name: limit for name, limit in _PATIENCE.items() if name not in made.query}
    return {
        "pool_size": CONNECTIONS,
        "max_overflow": 0,
        "pool_timeout": _POOL_WAIT_S,
        "connect_args": given if made.get_driver_name() == "psycopg" else {},
    }


def _leave_what_only_reads(context: sa.ExceptionContext) -> None:
    # Connections to a server that became a standby would stay with it; new ones find the one that writes.
    if getattr(context.original_exception, "sqlstate", None) == READ_ONLY:
        context.is_disconnect = True


def _begin_sqlite(connection: sa.Connection) -> None:
    reads_only = connection.get_execution_options().get(READS_ONLY, False)
    # A transaction that will write waits for the lock at its begin: later it would only be told "busy".
    connection.exec_driver_sql("BEGIN" if reads_only else "BEGIN IMMEDIATE")


def _prepare_postgresql(name: str, connection: Any, _: object) -> None:
    was = connection.autocommit
    connection.autocommit = True
    connection.execute(f"SET idle_in_transaction_session_timeout = '{_IDLE_LIMIT}'")
    connection.execute(f"SET application_name = '{name}'")
    connection.autocommit = was


def _prepare_sqlite(connection: Any, _: object) -> None:
    connection.isolation_level = None  # SQLAlchemy, not the driver, begins transactions
    for pragma in ("journal_mode=WAL", "synchronous=FULL", "busy_timeout=5000", "foreign_keys=ON"):
        connection.execute(f"PRAGMA {pragma}")


def engine_name(url: str) -> str:
    """The URL without its password."""
    return str(sa.engine.make_url(url).render_as_string(hide_password=True))
