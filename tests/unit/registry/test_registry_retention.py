"""What the registry forgets, and what never: the living, and what a watcher may still go on from."""

from dataclasses import replace
from typing import Any

import pytest
from memory_registry import MemoryRegistry

from peerloom.errors import (
    FailedPreconditionError,
    InvalidArgumentError,
    NotFoundError,
    ResourceExhaustedError,
)
from peerloom.services.registry.membership.node_retention import RetentionLimits
from peerloom.v1.registry_pb2 import (
    NODE_EVENT_KIND_DRAIN_CHANGED,
    NODE_EVENT_KIND_INTERRUPTED,
    NODE_EVENT_KIND_REGISTERED,
    NODE_EVENT_KIND_REMOVED,
)

DAY_S = 86_400.0


async def limited(registry: MemoryRegistry, nodes: int = 100, events: int = 1000) -> MemoryRegistry:
    registry.limits = replace(registry.limits, retention=RetentionLimits(nodes, 30.0, events))
    await registry.restart()
    return registry


def names(registry: MemoryRegistry) -> list[str]:
    return [member.record.name for member in registry.core.table.after("", 1000)]


async def leave(registry: MemoryRegistry, name: str) -> None:
    session = await registry.register(name)
    await registry.core.registrar.deregister(session.session_id, "")


async def sequences(registry: MemoryRegistry, after: int = 0) -> list[int]:
    return [event.sequence for event in await registry.events(after)]


async def test_a_newcomer_takes_the_place_of_the_node_that_is_gone_for_longest(registry: Any) -> None:
    await limited(registry, nodes=3)
    await registry.register("alive")
    for name in ("old", "older"):
        await leave(registry, name)
        registry.clock.advance(1.0)
    await registry.register("old")
    await registry.core.registrar.deregister(registry.core.table.find("old").session.session_id, "")
    await registry.register("new")
    assert names(registry) == ["alive", "new", "old"], "older had gone first in the end"
    await registry.register("newer")
    assert names(registry) == ["alive", "new", "newer"]
    with pytest.raises(ResourceExhaustedError, match="node_limit"):
        await registry.register("newest")
    assert names(registry) == ["alive", "new", "newer"], "the living are never displaced"
    await registry.restart()
    assert names(registry) == ["alive", "new", "newer"]


async def test_nodes_and_sessions_are_forgotten_after_the_retention(registry: Any) -> None:
    await leave(registry, "gone")
    session = await registry.register("here")
    registry.clock.advance(29 * DAY_S)
    await registry.beat(session.session_id)
    await registry.core.retention.sweep()
    assert names(registry) == ["gone", "here"]
    registry.clock.advance(2 * DAY_S)
    await registry.core.retention.sweep()
    assert names(registry) == ["here"]
    assert (await registry.kinds())[-1] == NODE_EVENT_KIND_REMOVED
    rows = registry.core.store.sessions(None, interrupted_only=False, before=None, limit=10)
    assert [row.session_id for row in rows] == [session.session_id]


async def test_old_events_go_but_the_newest_of_each_node_stays(registry: Any) -> None:
    await limited(registry, events=10)
    await registry.register("quiet")
    await registry.register("busy")
    for number in range(30):
        await registry.core.registrar.drain("busy", undo=bool(number % 2))
    assert len(await sequences(registry)) == 32
    await registry.core.retention.sweep()
    assert await sequences(registry) == [1, *range(23, 33)], "quiet's only event, and the ten newest"
    assert await sequences(registry, after=22) == list(range(23, 33))
    with pytest.raises(FailedPreconditionError, match="Start anew with after_sequence 0") as refused:
        await sequences(registry, after=21)
    assert refused.value.reason == "EVENTS_FORGOTTEN"
    await registry.restart()
    assert await sequences(registry) == [1, *range(23, 33)]
    with pytest.raises(FailedPreconditionError, match="has forgotten events after 5, up to 22"):
        await sequences(registry, after=5)


async def test_a_watcher_that_events_were_forgotten_before_is_told_so(registry: Any) -> None:
    await limited(registry, events=10)
    await registry.register("busy")
    for number in range(60):
        await registry.core.registrar.drain("busy", undo=bool(number % 2))
    await registry.restart()  # the ring is empty, so the watcher reads from the database
    watcher = registry.core.feed.follow(0, stop_at_present=True)
    assert (await anext(watcher)).sequence == 1
    await registry.core.retention.sweep()
    with pytest.raises(FailedPreconditionError, match="Start anew"):
        _ = [event async for event in watcher]


async def test_drain_flips_are_told_at_a_bounded_rate(registry: Any) -> None:
    await registry.register("ada")
    for number in range(100):
        await registry.core.registrar.drain("ada", undo=bool(number % 2))
    with pytest.raises(ResourceExhaustedError, match="changed too often"):
        await registry.core.registrar.drain("ada", undo=False)
    registry.clock.advance(1.0)
    await registry.core.registrar.drain("ada", undo=False)
    assert (await registry.kinds()).count(NODE_EVENT_KIND_DRAIN_CHANGED) == 101


async def test_a_node_that_flips_in_its_heartbeats_is_heard_and_told_of_later(registry: Any) -> None:
    session = await registry.register("ada")
    member = registry.core.table.find("ada")
    for number in range(1000):
        await registry.core.registrar.note_lending(member, "in use" if number % 2 else "")
    await registry.beat(session.session_id)
    assert (await registry.kinds()).count(NODE_EVENT_KIND_DRAIN_CHANGED) == 100
    registry.clock.advance(1.0)
    await registry.core.registrar.note_lending(member, "at last")
    assert member.withheld == "at last"


async def test_a_node_that_is_gone_is_removed_and_its_name_is_free(registry: Any) -> None:
    await leave(registry, "ada")
    former = registry.core.table.find("ada").record.node_id
    await registry.core.registrar.remove("ada", force=False)
    with pytest.raises(NotFoundError):
        registry.core.table.find("ada")
    session = await registry.register("ada", key="another-key-altogether")
    assert session.node_id != former
    assert (await registry.kinds())[-2:] == [NODE_EVENT_KIND_REMOVED, NODE_EVENT_KIND_REGISTERED]


async def test_a_node_that_is_there_is_removed_by_force_only(registry: Any) -> None:
    session = await registry.register("ada")
    with pytest.raises(FailedPreconditionError, match="has an open session") as refused:
        await registry.core.registrar.remove("ada", force=False)
    assert refused.value.reason == "NODE_IS_THERE"
    await registry.core.registrar.remove("ada", force=True)
    assert names(registry) == []
    assert (await registry.kinds())[-2:] == [NODE_EVENT_KIND_INTERRUPTED, NODE_EVENT_KIND_REMOVED]
    with pytest.raises(NotFoundError, match="register again"):
        await registry.beat(session.session_id)


async def test_a_name_that_is_too_long_to_be_one_is_not_looked_for(registry: Any) -> None:
    with pytest.raises(InvalidArgumentError, match="node is"):
        registry.core.table.find("x" * 1_000_000)
