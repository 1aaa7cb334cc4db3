"""A PostgreSQL database that lasts as long as it is used."""

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager

import sqlalchemy as sa

from benchmarks.stalling_proxy import StallingProxy

GIVEN = "PEERLOOM_TEST_DATABASE"
MISSING = f"needs PostgreSQL: set {GIVEN} to the URL of a database whose user may make others"


def is_given() -> bool:
    """Whether there is a server to make databases on."""
    return bool(os.environ.get(GIVEN))


@contextmanager
def new_postgresql() -> Iterator[str]:
    """The URL of a new database, which is dropped at the end. Raises SystemExit where no server is given."""
    if not is_given():
        raise SystemExit(MISSING)
    given, name = os.environ[GIVEN], f"peerloom_{secrets.token_hex(6)}"
    server = sa.create_engine(given, isolation_level="AUTOCOMMIT", poolclass=sa.NullPool)
    with server.connect() as connection:
        connection.exec_driver_sql(f"CREATE DATABASE {name}")
    try:
        yield sa.make_url(given).set(database=name).render_as_string(hide_password=False)
    finally:
        with server.connect() as connection:
            connection.exec_driver_sql(f"DROP DATABASE {name} WITH (FORCE)")


def by_socket(url: str) -> str:
    """The same database by its server's Unix socket: that is reached from every network namespace."""
    server = sa.create_engine(url, poolclass=sa.NullPool)
    with server.connect() as connection:
        folders: str = connection.exec_driver_sql("SHOW unix_socket_directories").scalar_one()
        port: str = connection.exec_driver_sql("SHOW port").scalar_one()
    of = sa.make_url(url)
    there = {"host": folders.split(",")[0].strip(), "port": port}
    socket = sa.URL.create(of.drivername, of.username, of.password, database=of.database, query=there)
    return socket.render_as_string(hide_password=False)


@contextmanager
def by_proxy(url: str, address: str = "127.0.0.1") -> Iterator[tuple[StallingProxy, str]]:
    """A proxy before the database, at an address of this machine, and the database's URL there."""
    of = sa.make_url(url)
    with StallingProxy((of.host or "", of.port or 5432), address) as proxy:
        there = of.set(host=address, port=proxy.port)
        yield proxy, there.render_as_string(hide_password=False)
