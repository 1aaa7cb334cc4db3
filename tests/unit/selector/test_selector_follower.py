"""Following the registry's log: each event once and in order, over breaks, restarts and another registry.

The registry is a scripted log behind the peer's interface; pauses are noted, and nobody waits.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest
from memory_selector import MemorySelector, node_id

from peerloom.errors import FailedPreconditionError, InvalidArgumentError, PeerloomError, UnavailableError
from peerloom.kit.clock import to_timestamp
from peerloom.services.selector.catalog.entries import Cursor, NodeEvent
from peerloom.services.selector.catalog.follower import LONGEST_PAUSE_S, Follower
from peerloom.services.selector.catalog.writer import CatalogWriter
from peerloom.v1.registry_pb2 import (
    NODE_EVENT_KIND_LEFT,
    NODE_EVENT_KIND_REGISTERED,
    NODE_STATE_ALIVE,
    NODE_STATE_LEFT,
    NODE_STATE_UNSPECIFIED,
    Node,
    NodeSpec,
    WatchNodesRequest,
    WatchNodesResponse,
)

LIMIT_S = 60.0


def message(sequence: int, number: int, registry: str = "registry-1", *, left: bool = False) -> Any:
    """An event of one node: it registered, or it left after 9 s."""
    state = NODE_STATE_LEFT if left else NODE_STATE_ALIVE
    spec = NodeSpec(name=f"n{number}", address=f"10.0.0.1:{number}", slots=1)
    return WatchNodesResponse(
        registry_id=registry,
        sequence=sequence,
        kind=NODE_EVENT_KIND_LEFT if left else NODE_EVENT_KIND_REGISTERED,
        node=Node(node_id=node_id(number), spec=spec, state=state),
        online_s=9.0 if left else 0.0,
        time=to_timestamp(1_700_000_000.0),
    )


class Stub:
    """The methods that a follower calls; the peer only hands them on."""

    WatchNodes = "WatchNodes"


@dataclass
class ScriptedRegistry:
    """A log that grows by `tell`; `failure` is raised at the start of each stream while it is set."""

    log: list[Any] = field(default_factory=list)
    failure: PeerloomError | None = None
    address: str = "127.0.0.1:7400"
    stub: type[Stub] = Stub
    forgotten: int = 0
    asked: list[tuple[int, bool]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._changed = asyncio.Event()
        self._breaks = False
        self.is_asked = asyncio.Event()

    def tell(self, *messages: Any) -> None:
        """More events."""
        self.log += messages
        self._wake()

    def break_streams(self) -> None:
        """Ends all live streams, as a restart of the registry does."""
        self._breaks = True
        self._wake()

    async def stream(
        self, method: Any, request: WatchNodesRequest, timeout_s: float | None = None
    ) -> AsyncGenerator[WatchNodesResponse]:
        """What WatchNodes answers."""
        assert method == Stub.WatchNodes
        self.asked.append((request.after_sequence, request.stop_at_present))
        self.is_asked.set()
        if self.failure is not None:
            raise self.failure
        newest = self.log[-1].sequence if self.log else 0
        if request.after_sequence > newest:
            raise InvalidArgumentError(f"after_sequence is beyond {newest}")
        after = request.after_sequence
        if 0 < after < self.forgotten:
            raise FailedPreconditionError(f"events after {after} are forgotten")
        while True:
            for one in [one for one in self.log if one.sequence > after]:
                yield one
                after = one.sequence
            if request.stop_at_present:
                return
            while after == (self.log[-1].sequence if self.log else 0):
                if self._breaks:
                    self._breaks = False
                    return
                await self._changed.wait()

    def _wake(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()


@dataclass
class Pauses:
    """Notes each pause, and lasts until `go_on`."""

    seconds: list[float] = field(default_factory=list)
    begun: asyncio.Event = field(default_factory=asyncio.Event)
    over: asyncio.Event = field(default_factory=asyncio.Event)

    async def sleep(self, seconds: float) -> None:
        """A pause of the follower."""
        self.seconds.append(seconds)
        self.begun.set()
        await self.over.wait()
        self.over.clear()

    async def next_one(self) -> None:
        """Returns when the follower pauses."""
        await self.begun.wait()
        self.begun.clear()


class NotingWriter(CatalogWriter):
    """Notes when the catalog has followed some events."""

    def __init__(self, selector: MemorySelector) -> None:
        super().__init__(selector.sql, selector.store, selector.columns, selector.clock)
        self.changed = asyncio.Event()

    async def follow(self, events: Sequence[NodeEvent]) -> None:
        """Applies them as the real one does."""
        await super().follow(events)
        self.changed.set()


@dataclass
class Following:
    """A follower under way, and all it touches."""

    selector: MemorySelector
    writer: NotingWriter
    pauses: Pauses
    follower: Follower

    async def until_known(self, count: int) -> None:
        """Returns when the catalog has that many nodes."""
        while len(self.selector.columns) < count:
            await self.writer.changed.wait()
            self.writer.changed.clear()


@asynccontextmanager
async def following(selector: MemorySelector, registry: ScriptedRegistry) -> AsyncIterator[Following]:
    pauses, writer = Pauses(), NotingWriter(selector)
    peer: Any = registry
    follower = Follower(peer, writer, await writer.load(), pauses.sleep)
    task = asyncio.create_task(follower.follow_forever())
    try:
        async with asyncio.timeout(LIMIT_S):
            yield Following(selector, writer, pauses, follower)
    finally:
        task.cancel()
        await asyncio.wait([task])


async def test_the_past_is_applied_and_then_what_comes() -> None:
    selector, registry = MemorySelector(), ScriptedRegistry([message(1, 1), message(2, 2)])
    async with following(selector, registry) as at:
        await at.follower.caught_up.wait()
        assert selector.columns.names == ["n1", "n2"]
        await at.follower.probe()
        registry.tell(message(3, 3), message(4, 1, left=True))
        await at.until_known(3)
    assert registry.asked == [(0, True), (2, False)]
    assert selector.store.load().cursor == Cursor("registry-1", 4)
    assert selector.explanations.of_node(node_id(1)).updates == 1


async def test_a_broken_stream_goes_on_behind_the_last_event() -> None:
    selector, registry = MemorySelector(), ScriptedRegistry([message(1, 1)])
    async with following(selector, registry) as at:
        await at.follower.caught_up.wait()
        registry.break_streams()
        await at.pauses.next_one()
        with pytest.raises(UnavailableError, match="it ended its stream"):
            await at.follower.probe()
        registry.tell(message(2, 2), message(3, 1, left=True))
        at.pauses.over.set()
        await at.until_known(2)
    assert registry.asked[2:4] == [(0, True), (1, True)], "it looks for its last event and reads on"
    assert selector.explanations.of_node(node_id(1)).updates == 1


async def test_pauses_grow_while_the_registry_is_away_and_are_short_again_after_it_was_there() -> None:
    selector, registry = MemorySelector(), ScriptedRegistry(failure=UnavailableError("nobody answers"))
    async with following(selector, registry) as at:
        for _ in range(8):
            await at.pauses.next_one()
            at.pauses.over.set()
        with pytest.raises(UnavailableError, match="nobody answers"):
            await at.follower.probe()
        grown = list(at.pauses.seconds)
        assert LONGEST_PAUSE_S / 2 <= grown[-1] <= LONGEST_PAUSE_S
        assert grown[0] <= 0.1
        registry.failure = None
        await at.follower.caught_up.wait()
        registry.break_streams()
        await at.pauses.next_one()
        assert at.pauses.seconds[-1] <= 0.1


@pytest.mark.parametrize(
    "log",
    [
        [message(1, 9, "registry-2")],
        [message(1, 9, "registry-2"), message(2, 8, "registry-2"), message(3, 7, "registry-2")],
    ],
    ids=["a shorter log", "as long a log"],
)
async def test_another_registrys_log_is_read_from_its_beginning(log: list[Any]) -> None:
    selector = MemorySelector()
    async with following(selector, ScriptedRegistry([message(1, 1), message(2, 2)])) as at:
        await at.follower.caught_up.wait()
    again = selector.again()
    async with following(again, ScriptedRegistry(log)) as at:
        await at.follower.caught_up.wait()
        assert again.columns.names[2:] == [one.node.spec.name for one in log]
        assert again.columns.state.tolist()[:2] == [NODE_STATE_UNSPECIFIED] * 2
    assert again.store.load().cursor == Cursor("registry-2", len(log))


async def test_a_log_that_has_forgotten_what_comes_next_is_read_from_its_beginning() -> None:
    """It tells of every node that there is; evidence counted before isn't counted again."""
    selector = MemorySelector()
    async with following(selector, ScriptedRegistry([message(1, 1), message(2, 2, left=True)])) as at:
        await at.follower.caught_up.wait()
    again = selector.again()
    log = [message(2, 2, left=True), message(60, 1), message(61, 3)]
    registry = ScriptedRegistry(log)
    registry.forgotten = 50
    async with following(again, registry) as at:
        await at.follower.caught_up.wait()
        assert again.columns.state.tolist() == [NODE_STATE_ALIVE, NODE_STATE_LEFT, NODE_STATE_ALIVE]
    found = again.explanations.of_node(node_id(2))
    assert found is not None
    assert found.updates == 1
    assert again.store.load().cursor == Cursor("registry-1", 61)


async def test_another_registry_in_mid_stream_is_told_and_changes_nothing() -> None:
    selector, registry = MemorySelector(), ScriptedRegistry([message(1, 1)])
    async with following(selector, registry) as at:
        await at.follower.caught_up.wait()
        registry.tell(message(2, 2, "registry-2"))
        await at.pauses.next_one()
        with pytest.raises(UnavailableError, match="another registry answers"):
            await at.follower.probe()
    assert selector.columns.names == ["n1"]
    assert selector.store.load().cursor == Cursor("registry-1", 1)


async def test_a_bug_shows_in_health_and_does_not_end_the_following() -> None:
    selector, registry = MemorySelector(), ScriptedRegistry([message(1, 1)])
    broken = message(2, 2)
    broken.node.state = 77  # no state of the schema: it doesn't fit the column
    broken.node.spec.slots = 2**31
    async with following(selector, registry) as at:
        await at.follower.caught_up.wait()
        registry.tell(broken)
        await at.pauses.next_one()
        with pytest.raises(UnavailableError, match="a bug of ours"):
            await at.follower.probe()
        registry.log[-1] = message(2, 2)
        at.pauses.over.set()
        await at.until_known(2)
    assert selector.columns.names == ["n1", "n2"]


async def test_the_present_is_reached_when_all_that_was_logged_is_applied() -> None:
    selector, registry = MemorySelector(), ScriptedRegistry([message(1, 1)])
    async with following(selector, registry) as at:
        await at.follower.caught_up.wait()
        assert not await at.follower.reach_present(LIMIT_S)
        registry.is_asked.clear()
        registry.log += [message(2, 2), message(3, 3)]  # and the live stream hasn't brought them yet
        reaching = asyncio.create_task(at.follower.reach_present(LIMIT_S))
        await registry.is_asked.wait()
        assert len(selector.columns) == 1
        assert not reaching.done()
        registry.tell()
        assert await reaching
        assert selector.columns.names == ["n1", "n2", "n3"]


async def test_the_present_is_not_told_of_while_the_registry_is_away() -> None:
    selector, registry = MemorySelector(), ScriptedRegistry(failure=UnavailableError("nobody answers"))
    async with following(selector, registry) as at:
        await at.pauses.next_one()
        with pytest.raises(UnavailableError, match="isn't followed: nobody answers"):
            await at.follower.reach_present(LIMIT_S)
        registry.failure = None
        at.pauses.over.set()
        await at.follower.caught_up.wait()
        registry.failure = FailedPreconditionError("it forgot them")
        with pytest.raises(UnavailableError, match="aren't known here yet, or may have: it forgot them"):
            await at.follower.reach_present(LIMIT_S)


async def test_a_long_log_comes_in_batches() -> None:
    selector, registry = (
        MemorySelector(),
        ScriptedRegistry([message(number, number) for number in range(1, 1201)]),
    )
    commits: list[int] = []
    follow = selector.store.follow

    def counting(events: Any, clock_s: Any) -> Any:
        commits.append(len(events))
        return follow(events, clock_s)

    selector.store.follow = counting  # type: ignore[method-assign]  # counts what goes through it
    async with following(selector, registry) as at:
        await at.follower.caught_up.wait()
    assert sum(commits) == len(selector.columns) == 1200
    assert max(commits) <= 500
    assert len(commits) < 100
