"""Databases for tests: SQLite in a file, and PostgreSQL, each empty, where a server is given."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext

from benchmarks.new_database import MISSING, is_given, new_postgresql
from peerloom.kit.clock import SystemClock
from peerloom.kit.database import Database, connect_database
from peerloom.kit.lease import Lease


@contextmanager
def new_database(kind: str, folder: Path) -> Iterator[str]:
    """The URL of a new database: "memory" or "file" of SQLite, or "postgresql"."""
    if kind == "postgresql":
        if not is_given():
            pytest.skip(MISSING)
        with new_postgresql() as url:
            yield url
    else:
        yield {"memory": "sqlite://", "file": f"sqlite:///{folder}/tests.sqlite"}[kind]


def differences(connection: sa.Connection, metadata: sa.MetaData) -> list[Any]:
    """How a database differs from a service's tables, whatever other tables it has."""

    def is_of_service(name: str | None, kind: str, parents: object) -> bool:
        return kind != "table" or name in metadata.tables

    options = {"compare_type": True, "include_name": is_of_service}
    return compare_metadata(MigrationContext.configure(connection, opts=options), metadata)


def in_memory(service: str, metadata: sa.MetaData) -> Database:
    """A database that lasts as long as its only thread, with these tables, whose lease is held."""
    database = connect_database("sqlite://", service)
    metadata.create_all(database.engine)
    Lease(database, SystemClock()).take_if_allowed()
    return database


def open_held(url: str, service: str, migrations: Path | str) -> Database:
    """A service's database with the newest tables, whose lease this process holds as long as it lives."""
    database = connect_database(url, service)
    verdict = Lease(database, SystemClock()).take_if_allowed()
    assert verdict.may_take, verdict.reason
    database.migrate(str(migrations))
    return database


@contextmanager
def held(url: str, service: str, migrations: Path | str) -> Iterator[Database]:
    """The same until the end of the block, so that it can be opened again."""
    database = connect_database(url, service)
    lease = Lease(database, SystemClock())
    verdict = lease.take_if_allowed()
    assert verdict.may_take, verdict.reason
    try:
        database.migrate(str(migrations))
        yield database
    finally:
        lease.give_up()
        database.close()
