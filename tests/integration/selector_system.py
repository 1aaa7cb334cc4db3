"""A registry and a selector as processes, and an outsider's view of their answers."""

import asyncio
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from conftest import ServiceHandle, StartService
from google.protobuf.timestamp_pb2 import Timestamp
from grpc_health.v1 import health_pb2, health_pb2_grpc

from peerloom.errors import NotFoundError
from peerloom.kit.channel import Peer, open_channel
from peerloom.kit.dialing import Dialer
from peerloom.kit.ids import new_request_id
from peerloom.v1 import registry_pb2, selector_pb2

LIMIT_S = 60.0
S = TypeVar("S")
SERVICE = "peerloom.v1.SelectorService"
SERVING = health_pb2.HealthCheckResponse.SERVING
NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING


class System:
    """A registry and a selector, each with its state folder; either may be killed and started again."""

    def __init__(self, start: StartService, folder: Path) -> None:
        self._start = start
        self._folder = folder
        self._opened: list[Peer[Any]] = []
        self.start_registry("registry")

    def start_registry(self, state: str, listen: str = "127.0.0.1:0") -> None:
        # No node beats here, and a slow machine must not make that look like a death.
        patience = ["--suspect-after-s", "300", "--dead-after-s", "600"]
        arguments = ["--state", str(self._folder / state), "--listen", listen, *patience]
        self.registry_process: ServiceHandle = self._start("registry", *arguments)
        self.registry = self._opening(Dialer().registry(self.registry_process.address))

    def start_selector(self, *arguments: str, **environment: str) -> None:
        state = str(self._folder / "selector")
        address = self.registry_process.address
        flags = ["--state", state, "--registry", address, *arguments]
        self.selector_process: ServiceHandle = self._start("selector", *flags, **environment)
        self.selector = self._opening(Dialer().selector(self.selector_process.address))

    async def start_informed_selector(self, *arguments: str) -> None:
        """Starts a selector and waits until it has read the registry's whole log: only then it serves."""
        self.start_selector(*arguments)
        await self.becomes(SERVING)

    async def register(self, name: str, *, key: str = "", **spec: Any) -> registry_pb2.RegisterResponse:
        request = registry_pb2.RegisterRequest(
            spec=registry_pb2.NodeSpec(name=name, address="127.0.0.1:9", **spec),
            node_key=(key or name).ljust(32, "k"),
            request_id=new_request_id(),
        )
        answer: registry_pb2.RegisterResponse = await self.registry.call(self.registry.stub.Register, request)
        return answer

    async def leave(self, lease_id: str) -> None:
        await self.registry.call(
            self.registry.stub.Deregister, registry_pb2.DeregisterRequest(lease_id=lease_id)
        )

    async def select(self, **request: Any) -> selector_pb2.SelectNodesResponse:
        message = selector_pb2.SelectNodesRequest(**{"request_budget": 1000, **request})
        answer: selector_pb2.SelectNodesResponse = await self.selector.call(
            self.selector.stub.SelectNodes, message
        )
        return answer

    async def report(self, *evidence: selector_pb2.Evidence) -> int:
        message = selector_pb2.ReportEvidenceRequest(evidence=evidence)
        answer: selector_pb2.ReportEvidenceResponse = await self.selector.call(
            self.selector.stub.ReportEvidence, message
        )
        return answer.applied

    async def belief(self, node: str) -> selector_pb2.Belief:
        answer = await self.selector.call(
            self.selector.stub.GetBelief, selector_pb2.GetBeliefRequest(node=node)
        )
        found: selector_pb2.Belief = answer.belief
        return found

    async def beliefs(self, page_size: int = 0) -> list[selector_pb2.Belief]:
        found: list[selector_pb2.Belief] = []
        request = selector_pb2.ListBeliefsRequest(page_size=page_size)
        while True:
            page = await self.selector.call(self.selector.stub.ListBeliefs, request)
            found += page.beliefs
            if not page.next_page_token:
                return found
            assert len(page.beliefs) == page_size
            request.page_token = page.next_page_token

    async def becomes(self, health: int) -> None:
        """Waits until the selector says that of its health."""
        async with asyncio.timeout(LIMIT_S), open_channel(self.selector_process.address) as channel:
            watch = health_pb2_grpc.HealthStub(channel).Watch(health_pb2.HealthCheckRequest(service=SERVICE))
            async for answer in watch:
                if answer.status == health:
                    return

    async def until(self, condition: Callable[[selector_pb2.Belief], bool], node: str) -> selector_pb2.Belief:
        """Asks until the node's belief is as wanted: the registry's events come when they come."""
        async with asyncio.timeout(LIMIT_S):
            while True:
                try:
                    found = await self.belief(node)
                except NotFoundError:
                    continue
                if condition(found):
                    return found

    async def close(self) -> None:
        for peer in self._opened:
            await peer.close()

    def _opening(self, peer: Peer[S]) -> Peer[S]:
        self._opened.append(peer)
        return peer


def evidence(
    name: str, node_id: str, kind: int = selector_pb2.EVIDENCE_KIND_TRAINING, **values: Any
) -> selector_pb2.Evidence:
    return selector_pb2.Evidence(
        evidence_id=name,
        node_id=node_id,
        kind=selector_pb2.EvidenceKind.ValueType(kind),
        time=Timestamp(seconds=1_700_000_000),
        **values,
    )


def formula(t: selector_pb2.BeliefTerms) -> float:
    """What the schema says of the terms, computed by somebody who has only the answer."""
    w = t.weights
    score_new = (
        w.score_old * t.score_old
        + w.transmission * t.transmissions
        + w.train * t.trainings
        - w.delay * t.delay_s
    )
    time_score = min(w.time_score_cap, t.ended_online_log + math.log(t.open_online_s + 1))
    return score_new + time_score - (t.interruptions + t.unfinished - time_score)
