"""A PostgreSQL engine's connections, kept so that another thread can break off what hangs in them."""

import os
import socket
import threading
from contextlib import suppress
from typing import Any

import sqlalchemy as sa
from sqlalchemy import event


class OpenConnections:
    """The connections that an engine has open. SQLite's have no server that could fail to answer."""

    def __init__(self, engine: sa.Engine) -> None:
        self._lock = threading.Lock()
        self._open: list[Any] = []
        if engine.dialect.name == "postgresql":
            # Before all else that is done with a new one, which asks the server: that may hang, too.
            event.listen(engine, "connect", self._keep, insert=True)

    def break_off(self) -> None:
        """Whoever waits for an answer over one of them is told that the connection has ended."""
        with self._lock:
            found, self._open = self._open, []
        for connection in found:
            # The driver's own `close` would free what the waiting thread uses.
            with (
                suppress(OSError, sa.exc.DBAPIError),
                socket.socket(fileno=os.dup(connection.fileno())) as ours,
            ):
                ours.shutdown(socket.SHUT_RDWR)

    def _keep(self, connection: Any, _: object) -> None:
        with self._lock:
            self._open = [known for known in self._open if not known.closed] + [connection]
