"""A whole registry without a network, a disk or real time, for tests to play with."""

import asyncio
import uuid
from dataclasses import dataclass, field
from typing import Any

from peerloom.kit.clock import ManualClock
from peerloom.kit.database import Database, storage_errors
from peerloom.services.registry.core import Core, RegistryLimits, load_core
from peerloom.services.registry.membership.application import check_application
from peerloom.services.registry.membership.decisions import Timing
from peerloom.services.registry.membership.node_records import Event
from peerloom.services.registry.membership.node_retention import RetentionLimits
from peerloom.services.registry.membership.table import HeartbeatStream, Member
from peerloom.services.registry.store import Store
from peerloom.v1 import registry_pb2 as pb
from peerloom.v1.common_pb2 import SlotCount
from peerloom.v1.registry_pb2 import NodeEventKind, NodeState

TIMING = Timing(heartbeat_interval_s=1.0, suspect_after_s=3.0, dead_after_s=10.0, restart_grace_s=5.0)
KEY = "0123456789abcdef"


async def run_in_place(function: Any, *args: Any, **kwargs: Any) -> Any:
    """SQL on the loop itself: an in-memory database belongs to one thread."""
    await asyncio.sleep(0)  # as a thread would, this gives others their turn
    with storage_errors("the registry's database"):
        return function(*args, **kwargs)


@dataclass
class MemoryRegistry:
    """A registry, its clock, and the nodes' side of the talk; `restart` keeps the database only."""

    database: Database
    clock: ManualClock
    limits: RegistryLimits = field(
        default_factory=lambda: RegistryLimits(
            TIMING, 15.0, RetentionLimits(nodes=100, days=30.0, events=1000)
        )
    )
    core: Core = field(init=False)
    _commits: asyncio.Task[None] | None = None

    async def start(self) -> "MemoryRegistry":
        """Loads the registry from the database."""
        await self.stop()
        self.core = await load_core(Store(self.database), run_in_place, self.limits, self.clock)
        self._commits = asyncio.create_task(self.core.commits.write_forever())
        return self

    async def stop(self) -> None:
        """Commits nothing more."""
        if self._commits is not None:
            self._commits.cancel()
            await asyncio.wait([self._commits])

    async def restart(self, downtime_s: float = 0.0) -> None:
        """As after SIGKILL: memory is lost, the wall clock went on."""
        self.clock.advance(downtime_s)
        await self.start()

    async def register(self, name: str = "ada", key: str = KEY, request_id: str = "", **spec: Any) -> Any:
        """Registers a node; a fresh request id unless one is given."""
        request = pb.RegisterRequest(
            spec=pb.NodeSpec(**{"name": name, "address": "10.0.0.1:7500", "slots": 2, **spec}),
            node_key=key,
            request_id=request_id or str(uuid.uuid4()),
        )
        return await self.core.registrar.register(check_application(request))

    def hear(self, lease_id: str, incarnation: int = 1, stream: HeartbeatStream | None = None) -> Any:
        """One beat, without the refutation that it may ask for."""
        beat = pb.HeartbeatRequest(
            lease_id=lease_id, incarnation=incarnation, slots=SlotCount(total=2, free=1)
        )
        return self.core.registrar.hear(stream or HeartbeatStream(), beat)

    async def beat(
        self, lease_id: str, incarnation: int = 1, stream: HeartbeatStream | None = None
    ) -> Member:
        """One beat with all that follows, as the servicer does it."""
        member, refutes = self.hear(lease_id, incarnation, stream)
        if refutes:
            await self.core.registrar.refute(member, incarnation)
        return member

    def advertise(self, request: pb.AdvertiseArtifactsRequest) -> int:
        """A node tells of its artifacts."""
        return self.core.artifacts.advertise(self.core.table.of_lease(request.lease_id), request)

    async def pass_time(self, seconds: float, step_s: float = 0.25) -> None:
        """Moves time on in steps, with a sweep after each."""
        for _ in range(round(seconds / step_s)):
            self.clock.advance(step_s)
            while await self.core.detector.sweep():
                pass

    async def end_stream(self, stream: HeartbeatStream) -> None:
        """A heartbeat stream breaks."""
        self.core.detector.stream_ended(stream)
        await self.core.work.wait_all()

    def pragma(self, statement: str) -> Any:
        """Sets or reads an option of SQLite outside any transaction."""
        connection = self.database.engine.raw_connection()
        try:
            return (connection.cursor().execute(f"PRAGMA {statement}").fetchone() or [None])[0]
        finally:
            connection.close()

    def state_of(self, name: str) -> NodeState.ValueType:
        """What the registry believes of a node now."""
        return self.core.table.find(name).record.state

    async def kinds(self) -> list[NodeEventKind.ValueType]:
        """What happened, in order."""
        return [event.kind for event in await self.events()]

    async def events(self, after: int = 0) -> list[Event]:
        """All events that exist now."""
        return [event async for event in self.core.feed.follow(after, stop_at_present=True)]
