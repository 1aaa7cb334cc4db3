"""A channel to several replicas in memory, as kit/channel's: calls go to whichever says that it serves.

Each replica's health is watched by gRPC's own service over a line that finds out soon when nobody answers.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING

from grpc import aio
from grpc_health.v1.health_pb2 import HealthCheckRequest, HealthCheckResponse
from grpc_health.v1.health_pb2_grpc import HealthStub

from peerloom.kit.dialing import Dialer
from peerloom.kit.replica_addresses import addresses_in
from peerloom.testing.memory_channel import MemoryChannel

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from peerloom.testing.memory_call import ClientCall
    from peerloom.testing.memory_network import Connection, MemoryNetwork
    from peerloom.testing.simulated_processes import ProcessRun

_LOOK_AGAIN_S = 0.1


class _Replica(MemoryChannel):
    """The line to one of them; `serves` is None until it has answered, or couldn't be reached."""

    is_watchful = True

    def __init__(
        self, network: MemoryNetwork, run: ProcessRun, address: str, on_change: Callable[[], None]
    ) -> None:
        super().__init__(network, run, address, retries=False)
        self.serves: bool | None = None
        self._on_change = on_change

    @property
    def line(self) -> Connection | None:
        """Where calls go, while it serves and can be reached."""
        is_there = self._line is not None and self._line.is_open and self.serves
        return self._line if is_there else None

    async def watch(self) -> None:
        """Follows its health, until cancelled."""
        stub: Any = HealthStub(self)
        while True:
            with suppress(aio.AioRpcError):
                async for answer in stub.Watch(HealthCheckRequest()):
                    self._tell(answer.status == HealthCheckResponse.SERVING)
            self._tell(False)
            await asyncio.sleep(max(_LOOK_AGAIN_S, self._again_s - self.network.loop.time()))

    def _tell(self, serves: bool) -> None:
        self.serves = serves
        self._on_change()


class ReplicatedChannel(MemoryChannel):
    """A channel of one process to several addresses of one service."""

    def __init__(self, network: MemoryNetwork, run: ProcessRun, addresses: str, retries: bool = True) -> None:
        super().__init__(network, run, addresses, retries)
        self._replicas = [_Replica(network, run, address, self._go_on) for address in addresses_in(addresses)]
        self._watches: list[asyncio.Task[None]] = []
        self._waiting: list[ClientCall] = []
        self._turn = 0

    def line_for(self, call: ClientCall) -> None:
        """Gives the call a line to one that serves; it waits only while that isn't known of all."""
        if not self._watches:
            self._watches = [self.run.spawn(replica.watch()) for replica in self._replicas]
        lines = [line for replica in self._replicas if (line := replica.line) is not None]
        if lines:
            self._turn += 1
            call.connected(lines[self._turn % len(lines)])
        elif any(replica.serves is None for replica in self._replicas):
            self._waiting.append(call)
        else:
            self.network.loop.call_soon(call.attempt_failed, f"{self.address}: none of them serves")

    async def close(self, grace: float | None = None) -> None:
        """Cancels what is under way."""
        await super().close(grace)
        for watch in self._watches:
            watch.cancel()
        for replica in self._replicas:
            await replica.close(grace)

    def _go_on(self) -> None:
        waiting, self._waiting = self._waiting, []
        for call in waiting:
            if not call.done():
                self.line_for(call)


def dialer_of(run: ProcessRun, retries: bool = True) -> Dialer:
    """Opens channels in memory, as this process; `retries` as in kit/channel."""

    def open_(address: str, identity: object, host_name: str) -> Any:
        made = ReplicatedChannel if "," in address else MemoryChannel
        return made(run.world.network, run, address, retries)

    async def speaks_tls(_: str) -> bool:
        return False  # its network is in memory

    return Dialer(open_=open_, probe=speaks_tls)
