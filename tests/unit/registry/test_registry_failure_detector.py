"""Silence: suspicion, refutation, death and forgiveness, with a clock that moves when told."""

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from peerloom.services.registry.membership.node_retention import RetentionLimits
from peerloom.services.registry.membership.table import HeartbeatStream
from peerloom.v1.registry_pb2 import (
    NODE_EVENT_KIND_INTERRUPTED,
    NODE_EVENT_KIND_REFUTED,
    NODE_EVENT_KIND_REGISTERED,
    NODE_EVENT_KIND_SUSPECTED,
    NODE_STATE_ALIVE,
    NODE_STATE_DEAD,
    NODE_STATE_SUSPECT,
    Node,
)


async def test_a_silent_node_is_suspected_then_dead_and_its_session_an_interruption(registry: Any) -> None:
    session = await registry.register()
    await registry.pass_time(1.0)
    await registry.beat(session.session_id)
    await registry.pass_time(2.75)
    assert registry.state_of("ada") == NODE_STATE_ALIVE
    await registry.pass_time(0.25)
    assert registry.state_of("ada") == NODE_STATE_SUSPECT
    await registry.pass_time(6.75)
    assert registry.state_of("ada") == NODE_STATE_SUSPECT
    await registry.pass_time(0.25)
    assert registry.state_of("ada") == NODE_STATE_DEAD
    last = (await registry.events())[-1]
    assert (last.kind, last.online_s) == (NODE_EVENT_KIND_INTERRUPTED, pytest.approx(1.0))
    assert Node.FromString(last.snapshot).state_reason == (
        "No heartbeat for 10.0 s; the session is closed after 10 s."
    )


async def test_an_old_incarnation_puts_death_off_but_only_a_higher_one_refutes(registry: Any) -> None:
    session = await registry.register()
    await registry.pass_time(9.0)
    member = await registry.beat(session.session_id, incarnation=1)
    assert member.record.state == NODE_STATE_SUSPECT
    await registry.pass_time(9.0)
    assert member.record.state == NODE_STATE_SUSPECT
    await registry.beat(session.session_id, incarnation=2)
    assert (member.record.state, member.record.incarnation) == (NODE_STATE_ALIVE, 2)
    assert await registry.kinds() == [
        NODE_EVENT_KIND_REGISTERED,
        NODE_EVENT_KIND_SUSPECTED,
        NODE_EVENT_KIND_REFUTED,
    ]


async def test_after_a_refutation_silence_is_noticed_in_time_again(registry: Any) -> None:
    session = await registry.register()
    await registry.pass_time(5.0)
    await registry.beat(session.session_id, incarnation=2)
    await registry.pass_time(3.0)
    assert registry.state_of("ada") == NODE_STATE_SUSPECT


async def test_two_refutations_at_once_are_one_event(registry: Any) -> None:
    session = await registry.register()
    await registry.pass_time(4.0)
    await asyncio.gather(*(registry.beat(session.session_id, incarnation=2) for _ in range(3)))
    assert (await registry.kinds()).count(NODE_EVENT_KIND_REFUTED) == 1


async def test_a_broken_stream_makes_suspect_at_once(registry: Any) -> None:
    session, stream = await registry.register(), HeartbeatStream()
    await registry.beat(session.session_id, stream=stream)
    await registry.end_stream(stream)
    assert registry.state_of("ada") == NODE_STATE_SUSPECT
    await registry.pass_time(10.0)
    assert registry.state_of("ada") == NODE_STATE_DEAD


async def test_the_end_of_a_stream_says_nothing_of_a_node_that_beats_on_another(registry: Any) -> None:
    session, old, new = await registry.register(), HeartbeatStream(), HeartbeatStream()
    await registry.beat(session.session_id, stream=old)
    await registry.beat(session.session_id, stream=new)
    await registry.end_stream(old)
    assert registry.state_of("ada") == NODE_STATE_ALIVE


async def test_the_end_of_a_former_sessions_stream_says_nothing_of_the_new_session(registry: Any) -> None:
    first, stream = await registry.register(), HeartbeatStream()
    await registry.beat(first.session_id, stream=stream)
    await registry.register()
    await registry.end_stream(stream)
    assert registry.state_of("ada") == NODE_STATE_ALIVE


async def test_streams_that_the_registry_ends_itself_suspect_nobody(registry: Any) -> None:
    session, stream = await registry.register(), HeartbeatStream()
    await registry.beat(session.session_id, stream=stream)
    registry.core.detector.close()
    await registry.end_stream(stream)
    assert registry.state_of("ada") == NODE_STATE_ALIVE


async def test_after_a_restart_the_lease_stands_and_nobody_dies_unheard(registry: Any) -> None:
    session = await registry.register()
    await registry.pass_time(2.0)
    await registry.restart(downtime_s=3600.0)
    await registry.pass_time(7.75)
    assert registry.state_of("ada") == NODE_STATE_ALIVE
    await registry.beat(session.session_id)
    await registry.pass_time(2.75)
    assert registry.state_of("ada") == NODE_STATE_ALIVE
    await registry.pass_time(7.25)
    assert registry.state_of("ada") == NODE_STATE_DEAD
    assert (await registry.events())[-1].online_s == pytest.approx(2.0 + 3600.0 + 7.75)


async def test_a_session_not_heard_after_a_restart_counts_until_that_restart(registry: Any) -> None:
    await registry.register()
    await registry.restart(downtime_s=100.0)
    await registry.pass_time(15.0)
    assert (await registry.events())[-1].kind == NODE_EVENT_KIND_INTERRUPTED
    assert (await registry.events())[-1].online_s == pytest.approx(100.0)


async def test_a_pause_of_the_registry_itself_makes_nobody_suspect(registry: Any) -> None:
    await registry.register()
    asleep_s = registry.clock.monotonic_s()
    registry.clock.advance(60.0)
    registry.core.detector.note_pause(asleep_s)
    await registry.pass_time(2.75)
    assert registry.state_of("ada") == NODE_STATE_ALIVE


async def test_a_verdict_that_cannot_be_stored_is_tried_again(registry: Any) -> None:
    await registry.register("ada")
    registry.pragma("query_only=ON")
    await registry.pass_time(4.0)
    assert registry.state_of("ada") == NODE_STATE_ALIVE
    registry.pragma("query_only=OFF")
    await registry.pass_time(1.5)
    assert registry.state_of("ada") == NODE_STATE_SUSPECT
    assert await registry.kinds() == [NODE_EVENT_KIND_REGISTERED, NODE_EVENT_KIND_SUSPECTED]


async def test_many_silent_nodes_are_judged_in_bounded_steps(registry: Any) -> None:
    """600 nodes fall silent at once; one sweep judges at most 256 of them."""
    registry.limits = replace(registry.limits, retention=RetentionLimits(1000, 30.0, 1000))
    await registry.restart(downtime_s=5.0)
    await asyncio.gather(*(registry.register(f"n{number}") for number in range(600)))
    registry.clock.advance(8.0)
    assert [await registry.core.detector.sweep() for _ in range(3)] == [True, True, False]
    assert (await registry.kinds()).count(NODE_EVENT_KIND_SUSPECTED) == 600
