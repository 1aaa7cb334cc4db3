"""Connections that come to a listening socket, on a loop."""

import asyncio
import errno
import socket
from contextlib import suppress

import pytest

from peerloom.kit.accepting import accepted, end_listening

LIMIT_S = 20.0


def listener() -> socket.socket:
    opened = socket.create_server(("127.0.0.1", 0))
    opened.setblocking(False)
    return opened


@pytest.mark.parametrize("turns", range(6))
async def test_who_is_cancelled_loses_no_connection(turns: int) -> None:
    async with asyncio.timeout(LIMIT_S):
        with listener() as listening, socket.create_connection(listening.getsockname(), LIMIT_S) as near:
            task = asyncio.create_task(accepted(listening))
            for _ in range(turns):
                await asyncio.sleep(0)
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task
            connection, address = await (accepted(listening) if task.cancelled() else task)
            with connection:
                assert (address, connection.gettimeout()) == (near.getsockname(), 0.0)


async def test_what_is_closed_meanwhile_wakes_nobody_and_then_says_so() -> None:
    async with asyncio.timeout(LIMIT_S):
        listening = listener()
        task = asyncio.create_task(accepted(listening))
        await asyncio.sleep(0)
        end_listening(listening)
        end_listening(listening)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        with pytest.raises(OSError, match="descriptor") as refused:
            await accepted(listening)
        assert refused.value.errno == errno.EBADF
