"""Silence: suspicion, refutation, death and forgiveness, with a clock that moves when told."""

import asyncio
from typing import Any

import pytest

from peerloom.services.registry.core import Limits
from peerloom.services.registry.roster import HeartbeatStream
from peerloom.services.registry.rules import EventKind, State
from peerloom.v1.registry_pb2 import Node


async def test_a_silent_node_is_suspected_then_dead_and_its_session_an_interruption(town: Any) -> None:
    session = await town.register()
    await town.pass_time(1.0)
    await town.beat(session.session_id)
    await town.pass_time(2.75)
    assert town.state_of("ada") is State.ALIVE
    await town.pass_time(0.25)
    assert town.state_of("ada") is State.SUSPECT
    await town.pass_time(6.75)
    assert town.state_of("ada") is State.SUSPECT
    await town.pass_time(0.25)
    assert town.state_of("ada") is State.DEAD
    last = (await town.events())[-1]
    assert (last.kind, last.online_s) == (EventKind.INTERRUPTED, pytest.approx(1.0))
    assert Node.FromString(last.snapshot).state_reason == (
        "No heartbeat for 10.0 s; the session is closed after 10 s."
    )


async def test_an_old_incarnation_puts_death_off_but_only_a_higher_one_refutes(town: Any) -> None:
    session = await town.register()
    await town.pass_time(9.0)
    member = await town.beat(session.session_id, incarnation=1)
    assert member.record.state is State.SUSPECT
    await town.pass_time(9.0)
    assert member.record.state is State.SUSPECT
    await town.beat(session.session_id, incarnation=2)
    assert (member.record.state, member.record.incarnation) == (State.ALIVE, 2)
    assert await town.kinds() == [EventKind.REGISTERED, EventKind.SUSPECTED, EventKind.REFUTED]


async def test_after_a_refutation_silence_is_noticed_in_time_again(town: Any) -> None:
    session = await town.register()
    await town.pass_time(5.0)
    await town.beat(session.session_id, incarnation=2)
    await town.pass_time(3.0)
    assert town.state_of("ada") is State.SUSPECT


async def test_two_refutations_at_once_are_one_event(town: Any) -> None:
    session = await town.register()
    await town.pass_time(4.0)
    await asyncio.gather(*(town.beat(session.session_id, incarnation=2) for _ in range(3)))
    assert (await town.kinds()).count(EventKind.REFUTED) == 1


async def test_a_broken_stream_makes_suspect_at_once(town: Any) -> None:
    session, stream = await town.register(), HeartbeatStream()
    await town.beat(session.session_id, stream=stream)
    await town.end_stream(stream)
    assert town.state_of("ada") is State.SUSPECT
    await town.pass_time(10.0)
    assert town.state_of("ada") is State.DEAD


async def test_the_end_of_a_stream_says_nothing_of_a_node_that_beats_on_another(town: Any) -> None:
    session, old, new = await town.register(), HeartbeatStream(), HeartbeatStream()
    await town.beat(session.session_id, stream=old)
    await town.beat(session.session_id, stream=new)
    await town.end_stream(old)
    assert town.state_of("ada") is State.ALIVE


async def test_the_end_of_a_former_sessions_stream_says_nothing_of_the_new_session(town: Any) -> None:
    first, stream = await town.register(), HeartbeatStream()
    await town.beat(first.session_id, stream=stream)
    await town.register()
    await town.end_stream(stream)
    assert town.state_of("ada") is State.ALIVE


async def test_streams_that_the_registry_ends_itself_suspect_nobody(town: Any) -> None:
    session, stream = await town.register(), HeartbeatStream()
    await town.beat(session.session_id, stream=stream)
    town.core.vigil.close()
    await town.end_stream(stream)
    assert town.state_of("ada") is State.ALIVE


async def test_after_a_restart_the_lease_stands_and_nobody_dies_unheard(town: Any) -> None:
    session = await town.register()
    await town.pass_time(2.0)
    await town.restart(downtime_s=3600.0)
    await town.pass_time(7.75)
    assert town.state_of("ada") is State.ALIVE
    await town.beat(session.session_id)
    await town.pass_time(2.75)
    assert town.state_of("ada") is State.ALIVE
    await town.pass_time(7.25)
    assert town.state_of("ada") is State.DEAD
    assert (await town.events())[-1].online_s == pytest.approx(2.0 + 3600.0 + 7.75)


async def test_a_session_not_heard_after_a_restart_counts_until_that_restart(town: Any) -> None:
    await town.register()
    await town.restart(downtime_s=100.0)
    await town.pass_time(15.0)
    assert (await town.events())[-1].kind is EventKind.INTERRUPTED
    assert (await town.events())[-1].online_s == pytest.approx(100.0)


async def test_a_pause_of_the_registry_itself_makes_nobody_suspect(town: Any) -> None:
    await town.register()
    asleep_s = town.clock.monotonic_s()
    town.clock.advance(60.0)
    town.core.vigil.note_pause(asleep_s)
    await town.pass_time(2.75)
    assert town.state_of("ada") is State.ALIVE


async def test_a_verdict_that_cannot_be_stored_is_tried_again(town: Any) -> None:
    await town.register("ada")
    town.pragma("query_only=ON")
    await town.pass_time(4.0)
    assert town.state_of("ada") is State.ALIVE
    town.pragma("query_only=OFF")
    await town.pass_time(1.5)
    assert town.state_of("ada") is State.SUSPECT
    assert await town.kinds() == [EventKind.REGISTERED, EventKind.SUSPECTED]


async def test_many_silent_nodes_are_judged_in_bounded_steps(town: Any) -> None:
    """600 nodes fall silent at once; one sweep judges at most 256 of them."""
    town.limits = Limits(town.limits.timing, service_lease_s=15.0, node_limit=1000)
    await town.restart(downtime_s=5.0)
    await asyncio.gather(*(town.register(f"n{number}") for number in range(600)))
    town.clock.advance(8.0)
    assert [await town.core.vigil.sweep() for _ in range(3)] == [True, True, False]
    assert (await town.kinds()).count(EventKind.SUSPECTED) == 600
