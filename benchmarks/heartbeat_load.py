"""Nodes that do nothing but beat, as cheaply as possible, so that the server is what is measured."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from grpc import aio

from benchmarks.processes import Running
from peerloom.kit.channel import KEEPALIVE
from peerloom.kit.ids import new_request_id
from peerloom.v1.common_pb2 import SlotCount
from peerloom.v1.registry_pb2 import HeartbeatRequest, NodeSpec, RegisterRequest
from peerloom.v1.registry_pb2_grpc import RegistryServiceStub

HEARTBEAT = "/peerloom.v1.RegistryService/Heartbeat"
REGISTERED_AT_ONCE = 64


@dataclass(frozen=True)
class Load:
    """So many nodes over so many connections, measured for so many seconds."""

    nodes: int
    connections: int
    seconds: float


@dataclass(frozen=True)
class Rate:
    """Answered beats by seconds on the wall, and by seconds of the server's processor time."""

    beats_per_s: float
    beats_per_processor_s: float


@dataclass(frozen=True)
class Latencies:
    """Seconds from writing each beat to reading its answer; and how fast the nodes were registered."""

    seconds: list[float]
    registrations_per_s: float


@dataclass(frozen=True)
class _Beater:
    """One node's open stream and its beat, already in bytes: encoding it each time would be our own cost."""

    stream: Any
    beat: bytes

    async def beat_once(self) -> None:
        await self.stream.write(self.beat)
        if await self.stream.read() is aio.EOF:  # type: ignore[attr-defined]  # left out of grpc's stubs
            raise SystemExit("the server ended a heartbeat stream")


async def beat_as_fast_as_possible(server: Running, load: Load) -> Rate:
    """Each node sends its next beat as soon as it has the answer to the last."""
    async with _beaters(server.address, load) as (beaters, _):
        processor_s, begin_s = server.processor_s(), time.perf_counter()
        counts = await asyncio.gather(*(_beat_until(one, begin_s + load.seconds) for one in beaters))
        elapsed_s = time.perf_counter() - begin_s
        used_s = server.processor_s() - processor_s
    return Rate(sum(counts) / elapsed_s, sum(counts) / used_s)


async def _beat_until(beater: _Beater, end_s: float) -> int:
    count = 0
    while time.perf_counter() < end_s:
        await beater.beat_once()
        count += 1
    return count


async def beat_on_time(server: Running, load: Load, interval_s: float) -> Latencies:
    """Each node beats once an interval, all of them evenly spread over it."""
    async with _beaters(server.address, load) as (beaters, registrations_per_s):
        begin_s = time.perf_counter() + 1.0
        starts_s = (begin_s + interval_s * number / len(beaters) for number in range(len(beaters)))
        end_s = begin_s + load.seconds
        each = zip(beaters, starts_s, strict=True)
        found = await asyncio.gather(*(_beat_each(one, start_s, end_s, interval_s) for one, start_s in each))
    return Latencies([seconds for part in found for seconds in part], registrations_per_s)


async def _beat_each(beater: _Beater, due_s: float, end_s: float, interval_s: float) -> list[float]:
    latencies = []
    while due_s < end_s:
        await asyncio.sleep(due_s - time.perf_counter())
        sent_s = time.perf_counter()
        await beater.beat_once()
        latencies.append(time.perf_counter() - sent_s)
        due_s += interval_s
    return latencies


@asynccontextmanager
async def _beaters(address: str, load: Load) -> AsyncIterator[tuple[list[_Beater], float]]:
    """Registered nodes with open streams, and how many were registered a second."""
    # Without a pool of its own, all channels to one address would share one connection.
    options = [*KEEPALIVE, ("grpc.use_local_subchannel_pool", 1)]
    channels = [aio.insecure_channel(address, options=options) for _ in range(load.connections)]
    try:
        stub, begin_s = RegistryServiceStub(channels[0]), time.perf_counter()
        beats = await _in_batches([_register(stub, number) for number in range(load.nodes)])
        registrations_per_s = load.nodes / (time.perf_counter() - begin_s)
        open_streams = [channel.stream_stream(HEARTBEAT, None, None) for channel in channels]
        # gRPC turns calls away when thousands wait to be taken, so the streams are opened in batches too.
        beaters = await _in_batches([_open(open_streams[n % len(channels)], b) for n, b in enumerate(beats)])
        yield beaters, registrations_per_s
        for beater in beaters:
            beater.stream.cancel()
    finally:
        await asyncio.gather(*(channel.close(None) for channel in channels))


async def _open(open_stream: Any, beat: bytes) -> _Beater:
    beater = _Beater(open_stream(), beat)
    await beater.beat_once()
    return beater


async def _register(stub: Any, number: int) -> bytes:
    slots = SlotCount(total=1, free=1)
    spec = NodeSpec(name=f"node-{number}", address=f"10.0.0.1:{1024 + number % 60_000}", slots=1)
    request = RegisterRequest(spec=spec, node_key=f"benchmark-key-{number:06}", request_id=new_request_id())
    answer = await stub.Register(request, timeout=30)
    return HeartbeatRequest(
        lease_id=answer.lease_id, incarnation=answer.incarnation, slots=slots
    ).SerializeToString()


async def _in_batches(waiting: Sequence[Awaitable[Any]]) -> list[Any]:
    done: list[Any] = []
    for start in range(0, len(waiting), REGISTERED_AT_ONCE):
        done += await asyncio.gather(*waiting[start : start + REGISTERED_AT_ONCE])
    return done
