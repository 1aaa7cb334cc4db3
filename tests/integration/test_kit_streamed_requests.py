"""Aim: who streams requests to a service learns how the call really ended.

Method: a server that ends each call in the midst of what is sent to it; gRPC itself forgets the reason of
about every third such call.
"""

from collections.abc import AsyncIterator
from typing import Any

import grpc
import pytest
from grpc import aio

from peerloom.errors import FailedPreconditionError
from peerloom.kit.channel import Peer, open_channel

CALLS = 60


class Stub:
    """Two methods to which requests are streamed."""

    def __init__(self, channel: aio.Channel) -> None:
        self.Talk: Any = channel.stream_stream("/test/Talk", None, None)
        self.Send: Any = channel.stream_unary("/test/Send", None, None)


async def refuse_third(requests: AsyncIterator[bytes], context: Any) -> None:
    number = 0
    async for _ in requests:
        number += 1
        if number == 3:
            await context.abort(grpc.StatusCode.FAILED_PRECONDITION, "the third is refused")


async def answer_all(requests: AsyncIterator[bytes], context: Any) -> AsyncIterator[bytes]:
    await refuse_third(requests, context)
    yield b""  # it is a stream, of which nothing comes


async def fifty() -> AsyncIterator[bytes]:
    for _ in range(50):
        yield bytes(20_000)


@pytest.mark.timeout(60)
async def test_a_call_that_ends_while_we_send_tells_why() -> None:
    server = aio.server()
    methods = {
        "Talk": grpc.stream_stream_rpc_method_handler(answer_all),
        "Send": grpc.stream_unary_rpc_method_handler(refuse_third),
    }
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("test", methods),))
    address = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    await server.start()
    try:
        async with Peer(Stub, "test", address, lambda: open_channel(address)) as peer:
            for _ in range(CALLS):
                with pytest.raises(FailedPreconditionError, match="the third is refused"):
                    await anext(peer.converse(peer.stub.Talk, fifty()))
                with pytest.raises(FailedPreconditionError, match="the third is refused"):
                    await peer.send(peer.stub.Send, fifty())
    finally:
        await server.stop(None)
