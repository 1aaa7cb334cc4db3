"""Takes connections that come to a listening socket, on the event loop."""

import asyncio
import errno
import os
import socket
from typing import Any


async def accepted(listening: socket.socket) -> tuple[socket.socket, Any]:
    """The next connection, which doesn't block, and whose it is. Raises OSError, as for too many open files.

    Who cancels this loses no connection: the loop's own `sock_accept` may drop one that has come, unclosed.
    """
    while True:
        await _readable(listening)
        try:
            connection, address = listening.accept()
        except BlockingIOError:
            continue  # who knocked has gone
        connection.setblocking(False)
        return connection, address


def end_listening(listening: socket.socket) -> None:
    """Closes it, on the loop that accepts: its number may be another's at once. Once more does nothing."""
    if listening.fileno() >= 0:
        asyncio.get_running_loop().remove_reader(listening)
        listening.close()


async def _readable(listening: socket.socket) -> None:
    if listening.fileno() < 0:
        raise OSError(errno.EBADF, os.strerror(errno.EBADF))
    loop = asyncio.get_running_loop()
    knocked = asyncio.Event()
    loop.add_reader(listening, knocked.set)
    try:
        await knocked.wait()
    finally:
        if listening.fileno() >= 0:  # else `end_listening` has seen to it
            loop.remove_reader(listening)
