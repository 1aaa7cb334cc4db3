"""What a process tells the service manager that started it, systemd or whoever speaks its sd_notify(3)."""

import asyncio
import os
import socket
from collections.abc import Mapping
from contextlib import suppress

READY, STOPPING, ALIVE = "READY=1", "STOPPING=1", "WATCHDOG=1"


def tell(state: str) -> None:
    """Says READY, STOPPING or ALIVE where NOTIFY_SOCKET names somebody who wants to hear it."""
    address = os.environ.get("NOTIFY_SOCKET", "")
    if not address:
        return
    with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.setblocking(False)  # a manager that doesn't read must not hold us up
        manager.sendto(state.encode(), f"\0{address[1:]}" if address.startswith("@") else address)


def watchdog_interval_s(environment: Mapping[str, str], pid: int) -> float:
    """How often this process has to say that it is alive: twice as often as it is expected to; 0: never."""
    if environment.get("WATCHDOG_PID", str(pid)) != str(pid):
        return 0.0
    text = environment.get("WATCHDOG_USEC", "")
    return int(text) / 2e6 if text.isdecimal() else 0.0


async def feed_watchdog(interval_s: float) -> None:
    """Says ALIVE every so many seconds, until cancelled: an event loop that hangs says nothing."""
    while True:
        tell(ALIVE)
        await asyncio.sleep(interval_s)
