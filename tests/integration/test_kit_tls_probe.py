"""Aim: who was answered in plain hears at once that the other is gone: a takeover has no seconds to spare.

Method: a server answers a call, or messages of a stream, and goes. What would ask whether TLS is spoken
there, which takes 2 s at an address that is cut off, notes that it was asked.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Any

import grpc
import pytest
from grpc import aio

from peerloom.errors import UnavailableError
from peerloom.kit.channel import Peer, open_channel

pytestmark = pytest.mark.timeout(60)


class Stub:
    """A call, and a stream of answers."""

    def __init__(self, channel: aio.Channel) -> None:
        self.Ask: Any = channel.unary_unary("/test/Ask", None, None)
        self.Hear: Any = channel.unary_stream("/test/Hear", None, None)


class Probe:
    """Says that TLS is spoken everywhere; `asked` is where it was asked."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    async def __call__(self, address: str) -> bool:
        self.asked.append(address)
        return True


async def answer(request: bytes, _: Any) -> bytes:
    return request


async def tell_once(request: bytes, _: Any) -> AsyncIterator[bytes]:
    yield request
    await asyncio.Event().wait()  # for the server's end


async def started() -> tuple[aio.Server, str]:
    server = aio.server()
    methods = {
        "Ask": grpc.unary_unary_rpc_method_handler(answer),
        "Hear": grpc.unary_stream_rpc_method_handler(tell_once),
    }
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("test", methods),))
    address = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    await server.start()
    return server, address


def peer_at(address: str, probe: Probe) -> Peer[Stub]:
    return Peer(Stub, "test", address, lambda: open_channel(address, retries=False), probe=probe)


async def test_nobody_asks_for_tls_where_a_call_was_answered() -> None:
    server, address = await started()
    probe = Probe()
    async with peer_at(address, probe) as peer:
        assert await peer.call(peer.stub.Ask, b"1") == b"1"
        await server.stop(None)
        with pytest.raises(UnavailableError) as told:
            await peer.call(peer.stub.Ask, b"2")
    assert (told.value.reason, probe.asked) == ("UNREACHABLE", [])


async def test_nobody_asks_for_tls_where_a_stream_has_begun() -> None:
    server, address = await started()
    probe = Probe()
    async with peer_at(address, probe) as peer, aclosing(peer.stream(peer.stub.Hear, b"1")) as messages:
        assert await anext(messages) == b"1"
        await server.stop(None)
        with pytest.raises(UnavailableError):
            await anext(messages)
    assert probe.asked == []


async def test_who_was_never_answered_asks_for_tls_and_hears_of_the_door() -> None:
    server, address = await started()
    await server.stop(None)
    probe = Probe()
    async with peer_at(address, probe) as peer:
        with pytest.raises(UnavailableError) as told:
            await peer.call(peer.stub.Ask, b"1")
    assert (told.value.reason, probe.asked) == ("BEHIND_A_DOOR", [address])
