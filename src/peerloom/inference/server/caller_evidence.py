"""What an answering node says of who asked it: that node shook hands, so long after it was called.

A caller that names itself as a node is looked up at the registry and greeted at its agent's address. The
time that this takes is measured here, first-hand, and goes to the selector as the delay of a transfer; a
caller that can't be greeted took an answer and gives none. Each is greeted every 10 s at most.
"""

import asyncio
from collections import OrderedDict

from peerloom.errors import NotFoundError, PeerloomError
from peerloom.kit.clock import Clock
from peerloom.kit.dialing import Dialer
from peerloom.kit.directory import Directory
from peerloom.kit.evidence import EvidenceReporter, MemoryOutbox, detailed, transferred, unfinished
from peerloom.kit.logs import get_logger
from peerloom.v1.node_agent_pb2 import HandshakeRequest
from peerloom.v1.registry_pb2 import GetNodeRequest
from peerloom.v1.selector_pb2 import Evidence

GREETING_INTERVAL_S = 10.0
_GREETING_LIMIT_S = 2.0
_REMEMBERED = 1000
_log = get_logger()


class CallerEvidence:
    """Evidence about callers that are nodes, found through `directory`; `reporter` hands it over."""

    def __init__(self, directory: Directory, dialer: Dialer, clock: Clock) -> None:
        self._directory, self._dialer, self._clock = directory, dialer, clock
        self._greeted_s: OrderedDict[str, float] = OrderedDict()
        self._tasks: set[asyncio.Task[None]] = set()
        self._outbox = MemoryOutbox(_REMEMBERED)
        self.reporter = EvidenceReporter(self._outbox, directory.selector)

    def served(self, caller: str, moved_bytes: int) -> None:
        """A caller got an answer; it is greeted in a task of its own, so that nobody waits for that."""
        now_s = self._clock.monotonic_s()
        if not caller or now_s - self._greeted_s.get(caller, -GREETING_INTERVAL_S) < GREETING_INTERVAL_S:
            return
        self._greeted_s[caller] = now_s
        while len(self._greeted_s) > _REMEMBERED:
            self._greeted_s.popitem(last=False)
        task = asyncio.create_task(self._witness(caller, moved_bytes))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def close(self) -> None:
        """Gives up greetings that are under way."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _witness(self, caller: str, moved_bytes: int) -> None:
        try:
            self._outbox.add(await self._greet(caller, moved_bytes))
            self.reporter.wake()
        except NotFoundError:
            _log.info("caller_is_no_node", caller=caller)
        except PeerloomError as error:
            _log.info("caller_not_found", caller=caller, reason=error.message)

    async def _greet(self, caller: str, moved_bytes: int) -> Evidence:
        registry = self._directory.registry
        node = (await registry.call(registry.stub.GetNode, GetNodeRequest(node=caller))).node
        async with self._dialer.node_agent(node.spec.address) as agent:
            started_s = self._clock.monotonic_s()
            try:
                request = HandshakeRequest(caller="inference")
                await agent.call(agent.stub.Handshake, request, _GREETING_LIMIT_S)
            except PeerloomError as error:
                fact = unfinished("", node.node_id, self._clock.wall_s())
                return detailed(fact, f"inference: it asked, but didn't shake hands: {error.message}")
        delay_s = self._clock.monotonic_s() - started_s
        fact = transferred("", node.node_id, self._clock.wall_s(), delay_s, moved_bytes)
        return detailed(fact, "inference: it asked, and shook hands")
