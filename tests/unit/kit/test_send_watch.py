"""Aim: who doesn't take a message for 300 s loses the call, and nobody else.

Method: messages that take so long each, on virtual time.
"""

import asyncio

import pytest

from peerloom.kit.send_watch import SendWatch
from peerloom.testing.virtual_loop import VirtualLoop


@pytest.mark.parametrize(
    ("takes_s", "pause_s", "ends_s"),
    [
        ([0.0] * 5, 1000.0, None),
        ([299.0] * 5, 0.0, None),
        ([299.0] * 5, 10.0, None),
        ([1.0, 301.0], 0.0, 1.0 + 300.0),
        ([0.0, 0.0, 1e9], 100.0, 200.0 + 300.0),
    ],
)
def test_only_a_message_that_waits_for_too_long_ends_the_call(
    takes_s: list[float], pause_s: float, ends_s: float | None
) -> None:
    async def passed(seconds: float) -> None:
        over = asyncio.Event()
        loop.call_later(seconds, over.set)
        await over.wait()

    async def send() -> float | None:
        with SendWatch("method") as watch:
            try:
                for message_s in takes_s:
                    watch.begin()
                    await passed(message_s)
                    watch.end()
                    await passed(pause_s)
            except asyncio.CancelledError:
                return loop.time()
        return None

    loop = VirtualLoop()
    asyncio.set_event_loop(loop)
    began_s = loop.time()
    try:
        ended_s = loop.run_until_complete(send())
    finally:
        loop.is_over = True
        loop.close()
        asyncio.set_event_loop(None)
    assert ended_s == (None if ends_s is None else pytest.approx(began_s + ends_s))
