"""Translates between messages and our types; decides nothing."""

import asyncio
import random
from collections.abc import AsyncIterator
from typing import Any

from peerloom.kit.checks import check_choice
from peerloom.services.registry import wire
from peerloom.services.registry.application import check_application
from peerloom.services.registry.core import Core
from peerloom.services.registry.pages import node_page, session_page
from peerloom.services.registry.roster import HeartbeatStream, moment_of
from peerloom.v1 import registry_pb2 as pb
from peerloom.v1.registry_pb2_grpc import RegistryServiceServicer


class RegistryServicer(RegistryServiceServicer):
    """The calls of peerloom.v1.RegistryService."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._listening: set[asyncio.Task[Any]] = set()
        self._is_closing = False
        self._chance = random.Random()

    def close(self) -> None:
        """Ends all streams, so that a stop need not wait for those that would last for ever."""
        self._is_closing = True
        self._core.vigil.close()
        self._core.feed.close()
        for task in self._listening:
            task.cancel()

    async def Register(self, request: pb.RegisterRequest, context: Any) -> pb.RegisterResponse:
        session = await self._core.membership.register(check_application(request))
        return pb.RegisterResponse(
            node_id=session.node_id,
            lease_id=session.session_id,
            heartbeat_interval_s=self._core.limits.timing.heartbeat_interval_s,
            incarnation=session.incarnation,
        )

    async def Heartbeat(
        self, request_iterator: AsyncIterator[pb.HeartbeatRequest], context: Any
    ) -> AsyncIterator[pb.HeartbeatResponse]:
        """The hot path: between two beats nothing but memory is touched."""
        stream, membership, beats = HeartbeatStream(), self._core.membership, aiter(request_iterator)
        try:
            while (beat := await self._next(beats)) is not None:
                member, refutes = membership.hear(stream, beat)
                if refutes:
                    await membership.refute(member, beat.incarnation)
                if beat.withheld != member.withheld:
                    await membership.note_lending(member, beat.withheld)
                if beat.HasField("speed"):
                    await membership.note_speed(member, beat.speed)
                yield wire.beat_message(member, self._core.holdings.version(member))
        finally:
            self._core.vigil.stream_ended(stream)

    async def _next(self, beats: AsyncIterator[pb.HeartbeatRequest]) -> pb.HeartbeatRequest | None:
        """The next beat of a stream; None at its end, or ours."""
        task = asyncio.current_task()
        assert task is not None, "grpc.aio runs each call in a task"
        self._listening.add(task)  # not while it writes: grpc.aio would take the cancel there, and never end
        try:
            return None if self._is_closing else await anext(beats, None)
        except asyncio.CancelledError:
            if not self._is_closing:  # then it is our own close, and the stream ends in order
                raise
            return None
        finally:
            self._listening.discard(task)

    async def Deregister(self, request: pb.DeregisterRequest, context: Any) -> pb.DeregisterResponse:
        await self._core.membership.deregister(request.lease_id, request.reason)
        return pb.DeregisterResponse()

    async def Drain(self, request: pb.DrainRequest, context: Any) -> pb.DrainResponse:
        member = await self._core.membership.drain(request.node, undo=request.undo)
        return pb.DrainResponse(node=wire.member_message(member, moment_of(self._core.clock)))

    async def GetNode(self, request: pb.GetNodeRequest, context: Any) -> pb.GetNodeResponse:
        member = self._core.roster.find(request.node)
        return pb.GetNodeResponse(node=wire.member_message(member, moment_of(self._core.clock)))

    async def ListNodes(self, request: pb.ListNodesRequest, context: Any) -> pb.ListNodesResponse:
        for state in request.states:
            check_choice("states", state, wire.STATES.values(), "ALIVE, SUSPECT, DEAD or LEFT")
        return await node_page(self._core.roster, self._core.clock, request)

    async def WatchNodes(
        self, request: pb.WatchNodesRequest, context: Any
    ) -> AsyncIterator[pb.WatchNodesResponse]:
        core = self._core
        async for event in core.feed.follow(request.after_sequence, stop_at_present=request.stop_at_present):
            yield wire.event_message(event, core.registry_id)

    async def ListSessions(self, request: pb.ListSessionsRequest, context: Any) -> pb.ListSessionsResponse:
        sessions, token = await session_page(self._core, request, interrupted_only=False)
        return pb.ListSessionsResponse(sessions=sessions, next_page_token=token)

    async def ListInterruptions(
        self, request: pb.ListInterruptionsRequest, context: Any
    ) -> pb.ListInterruptionsResponse:
        sessions, token = await session_page(self._core, request, interrupted_only=True)
        return pb.ListInterruptionsResponse(interruptions=sessions, next_page_token=token)

    async def AnnounceService(
        self, request: pb.AnnounceServiceRequest, context: Any
    ) -> pb.AnnounceServiceResponse:
        self._core.announcements.announce(request.kind, request.address)
        return pb.AnnounceServiceResponse(lease_s=self._core.announcements.lease_s)

    async def AdvertiseArtifacts(
        self, request: pb.AdvertiseArtifactsRequest, context: Any
    ) -> pb.AdvertiseArtifactsResponse:
        return pb.AdvertiseArtifactsResponse(count=self._core.holdings.advertise(request))

    async def ListHolders(self, request: pb.ListHoldersRequest, context: Any) -> pb.ListHoldersResponse:
        members, count = self._core.holdings.find(request.digest, request.limit, self._chance)
        return pb.ListHoldersResponse(holders=[wire.holder_message(one) for one in members], count=count)

    async def ListServices(self, request: pb.ListServicesRequest, context: Any) -> pb.ListServicesResponse:
        standing = self._core.announcements.standing()
        return pb.ListServicesResponse(services=[wire.endpoint_message(found) for found in standing])
