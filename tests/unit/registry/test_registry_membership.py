"""What nodes ask for: registering, saying goodbye, draining; and what a full disk does to it."""

import asyncio
import uuid
from typing import Any

import pytest
import sqlalchemy as sa

from peerloom.errors import (
    AlreadyExistsError,
    InvalidArgumentError,
    NotFoundError,
    ResourceExhaustedError,
)
from peerloom.services.registry.rules import EventKind, State
from peerloom.v1.common_pb2 import MachineSpeed


async def test_a_node_that_comes_back_keeps_its_id_and_gets_a_new_session(town: Any) -> None:
    first = await town.register()
    await town.core.membership.deregister(first.session_id, "update")
    second = await town.register()
    assert second.node_id == first.node_id
    assert second.session_id != first.session_id
    assert (first.incarnation, second.incarnation) == (1, 2)
    assert await town.kinds() == [EventKind.REGISTERED, EventKind.LEFT, EventKind.REGISTERED]


async def test_a_name_held_by_another_is_refused_with_its_holder(town: Any) -> None:
    first = await town.register("ada")
    with pytest.raises(AlreadyExistsError, match=r"belongs since 2023-11-14.*the first keeps.*Choose") as no:
        await town.register("ada", key="another-key-of-16")
    assert no.value.metadata["node_id"] == first.node_id
    assert len(await town.events()) == 1


async def test_two_newcomers_of_one_name_at_once_get_one_node(town: Any) -> None:
    results = await asyncio.gather(
        town.register("ada", key="a" * 16), town.register("ada", key="b" * 16), return_exceptions=True
    )
    assert [type(result).__name__ for result in results] == ["OpenSession", "AlreadyExistsError"]
    assert len(town.core.roster) == 1


async def test_a_repeated_attempt_opens_no_second_session_not_even_over_a_restart(town: Any) -> None:
    request_id = str(uuid.uuid4())
    first = await town.register(request_id=request_id)
    again = await town.register(request_id=request_id)
    await town.restart()
    later = await town.register(request_id=request_id)
    assert first.session_id == again.session_id == later.session_id
    assert first.incarnation == again.incarnation == later.incarnation == 1
    assert await town.kinds() == [EventKind.REGISTERED]


async def test_an_agent_that_crashed_and_came_back_has_one_interruption_until_its_last_beat(
    town: Any,
) -> None:
    first = await town.register()
    await town.pass_time(2.0)
    await town.beat(first.session_id)
    await town.pass_time(1.5)
    await town.register()
    interrupted, registered = (await town.events())[1:]
    assert (interrupted.kind, interrupted.online_s) == (EventKind.INTERRUPTED, pytest.approx(2.0))
    assert registered.kind is EventKind.REGISTERED
    with pytest.raises(NotFoundError, match="register again") as ended:
        town.hear(first.session_id)
    assert ended.value.reason == "LEASE_ENDED"


async def test_beats_write_nothing(town: Any) -> None:
    session = await town.register()
    statements: list[str] = []
    sa.event.listen(town.engine, "before_cursor_execute", lambda *args: statements.append(args[2]))
    for _ in range(100):
        await town.beat(session.session_id)
    assert statements == []


async def test_a_goodbye_is_no_interruption_and_may_be_repeated(town: Any) -> None:
    session = await town.register()
    await town.pass_time(2.0)
    await town.core.membership.deregister(session.session_id, "holidays")
    await town.core.membership.deregister(session.session_id, "holidays")
    assert await town.kinds() == [EventKind.REGISTERED, EventKind.LEFT]
    last = (await town.events())[-1]
    assert (last.reason, last.online_s) == ("holidays", pytest.approx(2.0))
    await town.pass_time(20.0)
    assert town.state_of("ada") is State.LEFT


async def test_goodbye_is_refused_for_a_lease_that_never_was_or_was_interrupted(town: Any) -> None:
    with pytest.raises(NotFoundError):
        await town.core.membership.deregister("lease-unknown", "")
    session = await town.register()
    await town.pass_time(11.0)
    with pytest.raises(NotFoundError):
        await town.core.membership.deregister(session.session_id, "")


async def test_a_drain_is_told_once_and_outlives_session_and_restart(town: Any) -> None:
    session = await town.register()
    await town.core.membership.drain("ada", undo=False)
    await town.core.membership.drain(session.node_id, undo=False)
    assert (await town.kinds()).count(EventKind.DRAIN_CHANGED) == 1
    await town.restart()
    await town.register()
    assert town.core.roster.find("ada").record.draining
    await town.core.membership.drain("ada", undo=True)
    assert not town.core.roster.find("ada").record.draining


async def test_a_new_measurement_is_told_once_and_kept_over_a_restart(town: Any) -> None:
    await town.register()
    member, speed = town.core.roster.find("ada"), MachineSpeed(training_gflops=7.5, heartbeat_s=0.002)
    for _ in range(2):
        await town.core.membership.note_speed(member, speed)
    assert (await town.kinds()).count(EventKind.MEASURED) == 1
    await town.restart()
    assert town.core.roster.find("ada").record.spec.speed == speed
    with pytest.raises(InvalidArgumentError, match=r"speed\.heartbeat_s"):
        await town.core.membership.note_speed(member, MachineSpeed(heartbeat_s=-1.0))


async def test_an_unknown_node_gets_the_nearest_names(town: Any) -> None:
    await town.register("workshop-1")
    with pytest.raises(NotFoundError, match="Did you mean workshop-1"):
        await town.core.membership.drain("workshop-2", undo=False)


async def test_beats_that_make_no_sense_are_refused_and_change_nothing(town: Any) -> None:
    session = await town.register()
    with pytest.raises(InvalidArgumentError, match="incarnation"):
        town.hear(session.session_id, incarnation=2**63)
    assert town.core.roster.find("ada").record.incarnation == 1


async def fill_up(town: Any, labels: dict[str, str]) -> None:
    """Registers nodes one after the other, at most as many as the registry takes."""
    for number in range(99):
        await town.register(f"bob-{number}", labels=labels)


async def test_a_full_disk_changes_nothing_and_the_registry_goes_on_once_there_is_room(town: Any) -> None:
    session = await town.register("ada")
    town.pragma(f"max_page_count={town.pragma('page_count')}")
    labels = {str(n): "x" * 60 for n in range(32)}
    with pytest.raises(ResourceExhaustedError, match="disk is full"):
        await fill_up(town, labels)
    known, told = len(town.core.roster), len(await town.events())
    assert told == known
    with pytest.raises(ResourceExhaustedError):
        await town.register("ada", labels=labels)
    assert (await town.beat(session.session_id)).record.state is State.ALIVE
    town.pragma("max_page_count=100000")
    await town.register("carl")
    assert len(await town.events()) == known + 1


async def test_a_caller_that_gives_up_leaves_no_half_made_change(town: Any) -> None:
    asking = asyncio.create_task(town.register("ada"))
    await asyncio.sleep(0)
    asking.cancel()
    await town.core.errands.wait_all()
    assert asking.cancelled() or asking.cancelling()
    assert [member.record.name for member in town.core.roster.after("", 10)] == ["ada"]
    assert await town.kinds() == [EventKind.REGISTERED]


async def test_the_limit_of_nodes_refuses_newcomers_but_not_the_known(town: Any) -> None:
    for number in range(100):
        await town.register(f"n{number}")
    with pytest.raises(ResourceExhaustedError, match="node_limit"):
        await town.register("one-more")
    await town.register("n5")
