"""A port where other workers connect, with few places for those that haven't proved yet who they are."""

import socket
import threading
from collections.abc import Callable
from contextlib import suppress

from peerloom.artifacts.fetch.connection_table import ConnectionTable
from peerloom.kit.logs import get_logger
from peerloom.worker.group.relay.link import shut

STRANGERS, STRANGERS_OF_HOST = 256, 64
# Owns the connection, and gives what goes on with it once it is no stranger's; None: nothing does.
Greet = Callable[[socket.socket], Callable[[], object] | None]
_log = get_logger()


class Entrance:
    """Listens at a free port of `host`; `greet` is called in a thread for each connection.

    A connection counts as a stranger's until `greet` returns, or raises OSError, EOFError or ValueError,
    which closes it: a newer one of the same host may take the place of an older. `address` is host:port.
    Raises OSError when it can't listen.
    """

    def __init__(self, host: str, name: str, greet: Greet) -> None:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._name, self._greet = name, greet
        self._lock = threading.Lock()
        self._strangers = ConnectionTable[socket.socket](STRANGERS, STRANGERS_OF_HOST)
        self._listener = socket.create_server((host.strip("[]"), 0), family=family, backlog=STRANGERS)
        self.address = f"{host}:{self._listener.getsockname()[1]}"
        threading.Thread(target=self._accept, name=name, daemon=True).start()

    def close(self) -> None:
        """Lets nobody in any more."""
        shut(self._listener)  # wakes the thread that waits in accept
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                connection, address = self._listener.accept()
            except OSError:
                return
            with self._lock:
                is_taken, displaced = self._strangers.enter(connection, str(address[0]))
            if displaced is not None:
                shut(displaced)
            if is_taken:
                threading.Thread(
                    target=self._meet, args=(connection,), name=f"{self._name}-in", daemon=True
                ).start()
            else:
                connection.close()

    def _meet(self, connection: socket.socket) -> None:
        go_on = None
        try:
            go_on = self._greet(connection)
        except (OSError, EOFError, ValueError) as error:
            _log.warning("connection_refused", entrance=self._name, reason=str(error))
            with suppress(OSError):
                connection.close()
        finally:
            with self._lock:
                self._strangers.leave(connection)
        if go_on is not None:
            go_on()
