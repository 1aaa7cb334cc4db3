"""The network between the machines: delays, cuts in one direction, lost connections; and who listens where.

A connection carries calls in both directions as TCP would: what is sent arrives once and, within one stream
of a call, in order, or the connection breaks and both ends learn of it, each in its own time. Calls
overtake each other. What is sent into a cut is held, as TCP would send it again, until the cut heals or
keepalive gives up.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from peerloom.testing.virtual_loop import VirtualLoop

if TYPE_CHECKING:
    from peerloom.testing.memory_call import ClientCall
    from peerloom.testing.memory_server import MemoryServer, ServerCall
    from peerloom.testing.simulated_processes import ProcessRun

LOCAL_DELAY_S = 0.0002
# kit/channel pings every 10 s and waits 5 s for the answer; unanswered data is noticed after those 5 s.
KEEPALIVE_S = (5.0, 15.0)
FROZEN_KEEPALIVE_S = (10.0, 15.0)
# A channel to several replicas pings after 1 s of silence and waits 1.5 s.
WATCHFUL_KEEPALIVE_S = (1.5, 2.5)
CONNECT_LIMIT_S = 5.0  # as kit/channel
LAST_WORDS_S = 0.01  # the end of a connection comes after what was sent on it


@dataclass
class MemoryLink:
    """One direction between two machines. `reset_chance` is that of a message breaking its connection."""

    delay_s: float = 0.001
    jitter_s: float = 0.004
    reset_chance: float = 0.0
    slow_chance: float = 0.0  # that a message has to be sent again, which takes a while
    cuts: int = 0
    held: list[Callable[[], None]] = field(default_factory=list)


class Order:
    """What is sent in the same order arrives so; `last_s` is when the newest does."""

    __slots__ = ("last_s",)

    def __init__(self) -> None:
        self.last_s = 0.0


@dataclass(eq=False)
class Connection:
    """One channel's line to the server at an address. Both ends are runs of processes."""

    client: ProcessRun
    server: ProcessRun
    address: str
    is_watchful: bool = False  # its client finds out soon when nobody answers
    is_open: bool = True
    drained_s: float = 0.0  # what a process had sent before it died still arrives until then
    calls: dict[int, tuple[ClientCall, ServerCall]] = field(default_factory=dict)


class MemoryNetwork:
    """All links, and the servers by their addresses."""

    def __init__(self, loop: VirtualLoop, chance: random.Random) -> None:
        self.loop = loop
        self.chance = chance
        self.servers: dict[str, MemoryServer] = {}
        self.on_message: Callable[[str, str, str, int], None] = lambda source, target, what, size: None
        self.on_answer: Callable[[ProcessRun, str, Any, Any], None] = lambda run, method, request, response: (
            None
        )
        self._links: dict[tuple[str, str], MemoryLink] = {}
        self._connections: list[Connection] = []
        self._looked_through = 0  # open ones when the list was last looked through
        self.numbers = 0

    def link(self, source: str, target: str) -> MemoryLink:
        """The direction from one host to another."""
        found = self._links.get((source, target))
        if found is None:
            found = self._links[source, target] = MemoryLink()
        return found

    def delay_s(self, source: str, target: str) -> float:
        """How long the next message takes."""
        if source == target:
            return LOCAL_DELAY_S
        link = self.link(source, target)
        delay_s = link.delay_s + link.jitter_s * self.chance.random()
        if link.slow_chance and self.chance.random() < link.slow_chance:
            delay_s += self.chance.uniform(0.2, 1.0)
        return delay_s

    def can_talk(self, one: str, other: str) -> bool:
        """Whether messages pass in both directions."""
        return one == other or not (self.link(one, other).cuts or self.link(other, one).cuts)

    def connect(
        self, client: ProcessRun, server: ProcessRun, address: str, is_watchful: bool = False
    ) -> Connection:
        """A line between two processes."""
        if len(self._connections) > 2 * self._looked_through:  # not each time: there may be 100,000
            self._connections = [known for known in self._connections if known.is_open]
            self._looked_through = len(self._connections)
        made = Connection(client, server, address, is_watchful)
        self._connections.append(made)
        return made

    def send(
        self, line: Connection, to_server: bool, order: Order, deliver: Callable[..., None], *arguments: Any
    ) -> None:
        """Delivers once, after all that was sent in the same order; or breaks the line."""
        source, target = (line.client, line.server) if to_server else (line.server, line.client)
        link = self.link(source.host, target.host)
        if link.cuts:
            link.held.append(lambda: self._arrive(line, source, target, order, deliver, arguments))
        elif link.reset_chance and self.chance.random() < link.reset_chance:
            self.break_line(line, "the connection was reset")
        else:
            self._arrive(line, source, target, order, deliver, arguments)

    def _arrive(
        self,
        line: Connection,
        source: ProcessRun,
        target: ProcessRun,
        order: Order,
        deliver: Callable[..., None],
        arguments: tuple[Any, ...],
    ) -> None:
        if line.is_open:
            at_s = self.loop.time() + self.delay_s(source.host, target.host)
            order.last_s = max(order.last_s + 1e-6, at_s)  # a heap doesn't keep the order of equal times
            self.loop.call_at(
                order.last_s, _deliver, line, self.loop, deliver, arguments, context=target.context
            )

    def break_line(
        self, line: Connection, reason: str, client_after_s: float = 0, server_after_s: float = 0
    ) -> None:
        """Both ends learn that the line is broken, each after its time."""
        if not line.is_open:
            return
        line.is_open = False
        for number in sorted(line.calls):
            client, server = line.calls[number]
            self.loop.call_later(
                client_after_s, client.line_broken, line, reason, context=line.client.context
            )
            self.loop.call_later(server_after_s, server.line_broken, context=line.server.context)
        line.calls.clear()

    def process_died(self, run: ProcessRun) -> None:
        """The kernel closes a dead process's connections."""
        for address in [known for known, server in self.servers.items() if server.run is run]:
            del self.servers[address]
        for line in [known for known in self._connections if known.is_open]:
            if run in (line.client, line.server):
                self.close_line(line, run)

    def close_line(self, line: Connection, by: ProcessRun) -> None:
        """One end closes a connection; over a cut the other one hears nothing of it before keepalive."""
        other = line.server if line.client is by else line.client
        is_heard = not self.link(by.host, other.host).cuts
        after_s = self.delay_s(by.host, other.host) if is_heard else self.chance.uniform(*KEEPALIVE_S)
        after_s += LAST_WORDS_S
        line.drained_s = self.loop.time() + (after_s if is_heard else 0.0)
        self.break_line(line, "the other side closed the connection", after_s, after_s)

    def process_froze(self, run: ProcessRun) -> None:
        """Whoever talks to a process that answers no pings gives its connection up."""
        for line in [known for known in self._connections if known.is_open]:
            if run in (line.client, line.server):
                limits_s = WATCHFUL_KEEPALIVE_S if line.is_watchful else FROZEN_KEEPALIVE_S
                self.loop.later(self.chance.uniform(*limits_s), self._give_up_frozen, line, run)

    def _give_up_frozen(self, line: Connection, run: ProcessRun) -> None:
        if run.is_frozen:
            self.break_line(line, "keepalive found nobody")

    def cut(self, source: str, target: str) -> None:
        """Nothing passes in this direction any more."""
        link = self.link(source, target)
        link.cuts += 1
        if link.cuts == 1:
            for line in [known for known in self._connections if known.is_open]:
                if (line.client.host, line.server.host) in ((source, target), (target, source)):
                    limits_s = WATCHFUL_KEEPALIVE_S if line.is_watchful else KEEPALIVE_S
                    self.loop.later(self.chance.uniform(*limits_s), self._give_up_cut, line, link)

    def _give_up_cut(self, line: Connection, link: MemoryLink) -> None:
        if link.cuts:
            other_s = self.chance.uniform(0.0, 5.0)
            self.break_line(line, "keepalive found nobody", 0.0, other_s)

    def heal(self, source: str, target: str) -> None:
        """What was held is sent on."""
        link = self.link(source, target)
        link.cuts = max(0, link.cuts - 1)
        if not link.cuts:
            held, link.held = link.held, []
            for send in held:
                send()


def _deliver(
    line: Connection, loop: VirtualLoop, deliver: Callable[..., None], arguments: tuple[Any, ...]
) -> None:
    now_s = loop.time()
    if line.is_open or now_s < line.drained_s:  # else what was under way is lost with the line
        deliver(*arguments)
