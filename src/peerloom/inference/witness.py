"""What an answering node says of who asked it: that node shook hands, so long after it was called.

A caller that names itself as a node is looked up at the registry and greeted at its agent's address. The
time that this takes is measured here, first-hand, and goes to the selector as the delay of a transfer; a
caller that can't be greeted took an answer and gives none. Each is greeted every 10 s at most.
"""

import asyncio
import time
from collections import OrderedDict

from peerloom.errors import NotFoundError, PeerloomError
from peerloom.kit.channel import Peer
from peerloom.kit.directory import Directory
from peerloom.kit.ids import new_request_id
from peerloom.kit.logs import get_logger
from peerloom.v1.node_agent_pb2 import HandshakeRequest
from peerloom.v1.node_agent_pb2_grpc import NodeAgentServiceStub
from peerloom.v1.registry_pb2 import SERVICE_KIND_SELECTOR, GetNodeRequest
from peerloom.v1.selector_pb2 import (
    EVIDENCE_KIND_TRANSFER,
    EVIDENCE_KIND_UNFINISHED,
    Evidence,
    ReportEvidenceRequest,
)
from peerloom.v1.selector_pb2_grpc import SelectorServiceStub

GREETING_INTERVAL_S = 10.0
_GREETING_LIMIT_S = 2.0
_REMEMBERED = 1000
_log = get_logger()


class CallerWitness:
    """Reports callers that are nodes; `registry` is host:port, empty: nobody is reported."""

    def __init__(self, registry: str, tls_ca: str) -> None:
        self._directory = Directory(registry, tls_ca) if registry else None
        self._tls_ca = tls_ca
        self._greeted_s: OrderedDict[str, float] = OrderedDict()
        self._tasks: set[asyncio.Task[None]] = set()

    def served(self, caller: str, moved_bytes: int) -> None:
        """A caller got an answer; reported beside what goes on."""
        now_s = time.monotonic()
        if self._directory is None or not caller:
            return
        if now_s - self._greeted_s.get(caller, -GREETING_INTERVAL_S) < GREETING_INTERVAL_S:
            return
        self._greeted_s[caller] = now_s
        while len(self._greeted_s) > _REMEMBERED:
            self._greeted_s.popitem(last=False)
        task = asyncio.create_task(self._report(self._directory, caller, moved_bytes))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def close(self) -> None:
        """Ends what is under way."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._directory is not None:
            await self._directory.close()

    async def _report(self, directory: Directory, caller: str, moved_bytes: int) -> None:
        try:
            evidence = await self._greet(directory, caller, moved_bytes)
            selector = await directory.find(SERVICE_KIND_SELECTOR, SelectorServiceStub)
            await selector.call("ReportEvidence", ReportEvidenceRequest(evidence=[evidence]))
        except NotFoundError:
            _log.info("caller_is_no_node", caller=caller)
        except PeerloomError as error:
            _log.info("caller_not_reported", caller=caller, reason=error.message)

    async def _greet(self, directory: Directory, caller: str, moved_bytes: int) -> Evidence:
        node = (await directory.registry.call("GetNode", GetNodeRequest(node=caller))).node
        evidence = Evidence(evidence_id=new_request_id(), node_id=node.node_id)
        evidence.time.FromNanoseconds(time.time_ns())
        async with Peer(NodeAgentServiceStub, "node agent", node.spec.address, self._tls_ca) as agent:
            started_s = time.monotonic()
            try:
                await agent.call("Handshake", HandshakeRequest(caller="inference"), _GREETING_LIMIT_S)
            except PeerloomError as error:
                evidence.kind = EVIDENCE_KIND_UNFINISHED
                evidence.detail = f"inference: it asked, but didn't shake hands: {error.message}"[:512]
                return evidence
        evidence.kind = EVIDENCE_KIND_TRANSFER
        evidence.delay_s, evidence.transfer_bytes = time.monotonic() - started_s, moved_bytes
        evidence.detail = "inference: it asked, and shook hands"
        return evidence
