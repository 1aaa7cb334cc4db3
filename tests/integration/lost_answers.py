"""Commits whose answers are lost: the connection breaks before, or after, the database has made them."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
import sqlalchemy as sa


@contextmanager
def lost_answer(engine: sa.Engine, *, is_made: bool) -> Iterator[None]:
    """The next commit on a PostgreSQL loses its answer; `is_made` says whether the database made it."""
    dialect: Any = engine.dialect
    commit = dialect.do_commit

    def lose(connection: Any) -> None:
        dialect.do_commit = commit
        if is_made:
            commit(connection)
        connection.driver_connection.close()
        raise psycopg.OperationalError("server closed the connection unexpectedly")

    dialect.do_commit = lose
    try:
        yield
    finally:
        dialect.do_commit = commit
