"""The registry's calls: translates between messages and our types; decides nothing."""

import asyncio
import random
from collections.abc import AsyncIterator
from typing import Any

from peerloom.kit.checks import check_choice, check_labels, check_name, check_range
from peerloom.kit.dialing import Dialer
from peerloom.kit.interceptors import caller
from peerloom.kit.roles import check_is_node, check_owns
from peerloom.services.registry.answers import node_messages
from peerloom.services.registry.answers.pages import node_page, session_page
from peerloom.services.registry.core import Core
from peerloom.services.registry.discovery.announcements import check_announces
from peerloom.services.registry.discovery.dialling_back import ReachabilityCheck, relay_offers
from peerloom.services.registry.membership.application import check_application, check_reached_at
from peerloom.services.registry.membership.table import HeartbeatStream, moment_of
from peerloom.v1 import registry_pb2 as pb
from peerloom.v1.registry_pb2_grpc import RegistryServiceServicer

MAX_STATES = 16
STATES = (pb.NODE_STATE_ALIVE, pb.NODE_STATE_SUSPECT, pb.NODE_STATE_DEAD, pb.NODE_STATE_LEFT)


class RegistryServicer(RegistryServiceServicer):
    """The calls of peerloom.v1.RegistryService; `chance` orders the holders of an artifact, and relays.

    `dialer` dials nodes back.
    """

    def __init__(self, core: Core, dialer: Dialer, chance: random.Random) -> None:
        self._core = core
        self._reachability = ReachabilityCheck(dialer)
        self._listening: set[asyncio.Task[Any]] = set()
        self._is_closing = False
        self._chance = chance

    def close(self) -> None:
        """Ends all heartbeat and watch streams, which would otherwise hold up the process's stop for ever."""
        self._is_closing = True
        self._core.detector.close()
        self._core.feed.close()
        for task in self._listening:
            task.cancel()

    async def Register(self, request: pb.RegisterRequest, context: Any) -> pb.RegisterResponse:
        session = await self._core.registrar.register(check_application(request, caller.get().principal))
        return pb.RegisterResponse(
            node_id=session.node_id,
            lease_id=session.session_id,
            heartbeat_interval_s=self._core.limits.timing.heartbeat_interval_s,
            incarnation=session.incarnation,
        )

    async def CheckReachability(
        self, request: pb.CheckReachabilityRequest, context: Any
    ) -> pb.CheckReachabilityResponse:
        check_name("name", request.name)
        check_reached_at("", request.address, "")
        who = caller.get()
        reason = await self._reachability.why_not(who.principal, who.peer, request.name, request.address)
        relays = [member.record for member in self._core.table.relays] if reason else []
        offers = relay_offers(relays, request.name, who.owner, self._chance)
        return pb.CheckReachabilityResponse(reachable=not reason, reason=reason, relays=offers)

    async def Heartbeat(
        self, request_iterator: AsyncIterator[pb.HeartbeatRequest], context: Any
    ) -> AsyncIterator[pb.HeartbeatResponse]:
        """The hot path: between two heartbeats nothing but memory is touched."""
        stream, core, beats = HeartbeatStream(), self._core, aiter(request_iterator)
        principal, listening, registrar = caller.get().principal, self._listening, self._core.registrar
        task = asyncio.current_task()
        assert task is not None, "grpc.aio runs each call in a task"
        try:
            while not self._is_closing:
                listening.add(task)  # not while it writes: grpc.aio would swallow the cancel there
                try:
                    beat = await anext(beats)
                finally:
                    listening.discard(task)
                if principal is not None:
                    check_is_node(principal, core.table.of_lease(beat.lease_id).record.node_id)
                member, refutes = registrar.hear(stream, beat)
                if refutes:
                    await registrar.refute(member, beat.incarnation)
                if beat.withheld != member.withheld:
                    await registrar.note_lending(member, beat.withheld)
                if beat.HasField("speed"):
                    await registrar.note_speed(member, beat.speed)
                if beat.HasField("load"):
                    registrar.note_load(member, beat.load)
                if beat.address:
                    await registrar.note_address(member, beat.address, beat.via)
                yield node_messages.beat_message(member, core.artifacts.version(member))
        except StopAsyncIteration:
            return
        except asyncio.CancelledError:
            if not self._is_closing:  # else `close` cancelled it, and the stream ends in order
                raise
        finally:
            core.detector.stream_ended(stream)

    async def Deregister(self, request: pb.DeregisterRequest, context: Any) -> pb.DeregisterResponse:
        if member := self._core.table.by_lease.get(request.lease_id):
            check_is_node(caller.get().principal, member.record.node_id)
        await self._core.registrar.deregister(request.lease_id, request.reason)
        return pb.DeregisterResponse()

    async def Drain(self, request: pb.DrainRequest, context: Any) -> pb.DrainResponse:
        self._check_owns(request.node)
        member = await self._core.registrar.drain(request.node, undo=request.undo)
        return pb.DrainResponse(node=node_messages.member_message(member, moment_of(self._core.clock)))

    async def RemoveNode(self, request: pb.RemoveNodeRequest, context: Any) -> pb.RemoveNodeResponse:
        self._check_owns(request.node)
        member = await self._core.registrar.remove(request.node, force=request.force)
        return pb.RemoveNodeResponse(node=node_messages.member_message(member, moment_of(self._core.clock)))

    def _check_owns(self, node: str) -> None:
        record = self._core.table.find(node).record
        check_owns(caller.get().principal, record.spec.owner, record.name)

    async def GetNode(self, request: pb.GetNodeRequest, context: Any) -> pb.GetNodeResponse:
        member = self._core.table.find(request.node)
        return pb.GetNodeResponse(node=node_messages.member_message(member, moment_of(self._core.clock)))

    async def ListNodes(self, request: pb.ListNodesRequest, context: Any) -> pb.ListNodesResponse:
        check_range("number of states", len(request.states), 0, MAX_STATES)
        for state in request.states:
            check_choice("states", state, STATES, "ALIVE, SUSPECT, DEAD or LEFT")
        check_labels("labels", request.labels)
        return await node_page(self._core.table, self._core.clock, request)

    async def WatchNodes(
        self, request: pb.WatchNodesRequest, context: Any
    ) -> AsyncIterator[pb.WatchNodesResponse]:
        core = self._core
        async for event in core.feed.follow(request.after_sequence, stop_at_present=request.stop_at_present):
            yield node_messages.event_message(event, core.registry_id)

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
        check_announces(caller.get().principal, request.kind)
        self._core.announcements.announce(
            request.kind, request.address, request.epoch, stands_by=request.stands_by
        )
        return pb.AnnounceServiceResponse(lease_s=self._core.announcements.lease_s)

    async def AdvertiseArtifacts(
        self, request: pb.AdvertiseArtifactsRequest, context: Any
    ) -> pb.AdvertiseArtifactsResponse:
        member = self._core.table.of_lease(request.lease_id)
        check_is_node(caller.get().principal, member.record.node_id)
        return pb.AdvertiseArtifactsResponse(count=self._core.artifacts.advertise(member, request))

    async def ListHolders(self, request: pb.ListHoldersRequest, context: Any) -> pb.ListHoldersResponse:
        members, count = self._core.artifacts.find(request.digest, request.limit, self._chance)
        return pb.ListHoldersResponse(
            holders=[node_messages.holder_message(one) for one in members], count=count
        )

    async def ListServices(self, request: pb.ListServicesRequest, context: Any) -> pb.ListServicesResponse:
        standing = self._core.announcements.standing()
        services = [node_messages.endpoint_message(found) for found in standing]
        return pb.ListServicesResponse(services=services, registry_id=self._core.registry_id)
