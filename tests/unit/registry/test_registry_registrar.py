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
from peerloom.v1.common_pb2 import MachineSpeed
from peerloom.v1.registry_pb2 import (
    NODE_EVENT_KIND_DRAIN_CHANGED,
    NODE_EVENT_KIND_INTERRUPTED,
    NODE_EVENT_KIND_LEFT,
    NODE_EVENT_KIND_MEASURED,
    NODE_EVENT_KIND_REGISTERED,
    NODE_STATE_ALIVE,
    NODE_STATE_LEFT,
)


async def test_a_node_that_comes_back_keeps_its_id_and_gets_a_new_session(registry: Any) -> None:
    first = await registry.register()
    await registry.core.registrar.deregister(first.session_id, "update")
    second = await registry.register()
    assert second.node_id == first.node_id
    assert second.session_id != first.session_id
    assert (first.incarnation, second.incarnation) == (1, 2)
    assert await registry.kinds() == [
        NODE_EVENT_KIND_REGISTERED,
        NODE_EVENT_KIND_LEFT,
        NODE_EVENT_KIND_REGISTERED,
    ]


async def test_a_name_held_by_another_is_refused_with_its_holder(registry: Any) -> None:
    first = await registry.register("ada")
    with pytest.raises(AlreadyExistsError, match=r"belongs since 2023-11-14.*the first keeps.*Choose") as no:
        await registry.register("ada", key="another-key-of-16")
    assert no.value.metadata["node_id"] == first.node_id
    assert len(await registry.events()) == 1


async def test_two_newcomers_of_one_name_at_once_get_one_node(registry: Any) -> None:
    results = await asyncio.gather(
        registry.register("ada", key="a" * 16), registry.register("ada", key="b" * 16), return_exceptions=True
    )
    assert [type(result).__name__ for result in results] == ["OpenSession", "AlreadyExistsError"]
    assert len(registry.core.table) == 1


async def test_a_repeated_attempt_opens_no_second_session_not_even_over_a_restart(registry: Any) -> None:
    request_id = str(uuid.uuid4())
    first = await registry.register(request_id=request_id)
    again = await registry.register(request_id=request_id)
    await registry.restart()
    later = await registry.register(request_id=request_id)
    assert first.session_id == again.session_id == later.session_id
    assert first.incarnation == again.incarnation == later.incarnation == 1
    assert await registry.kinds() == [NODE_EVENT_KIND_REGISTERED]


async def test_an_agent_that_crashed_and_came_back_has_one_interruption_until_its_last_beat(
    registry: Any,
) -> None:
    first = await registry.register()
    await registry.pass_time(2.0)
    await registry.beat(first.session_id)
    await registry.pass_time(1.5)
    await registry.register()
    interrupted, registered = (await registry.events())[1:]
    assert (interrupted.kind, interrupted.online_s) == (NODE_EVENT_KIND_INTERRUPTED, pytest.approx(2.0))
    assert registered.kind == NODE_EVENT_KIND_REGISTERED
    with pytest.raises(NotFoundError, match="register again") as ended:
        registry.hear(first.session_id)
    assert ended.value.reason == "LEASE_ENDED"


async def test_beats_write_nothing(registry: Any) -> None:
    session = await registry.register()
    statements: list[str] = []
    sa.event.listen(
        registry.database.engine, "before_cursor_execute", lambda *args: statements.append(args[2])
    )
    for _ in range(100):
        await registry.beat(session.session_id)
    assert statements == []


async def test_a_goodbye_is_no_interruption_and_may_be_repeated(registry: Any) -> None:
    session = await registry.register()
    await registry.pass_time(2.0)
    await registry.core.registrar.deregister(session.session_id, "holidays")
    await registry.core.registrar.deregister(session.session_id, "holidays")
    assert await registry.kinds() == [NODE_EVENT_KIND_REGISTERED, NODE_EVENT_KIND_LEFT]
    last = (await registry.events())[-1]
    assert (last.reason, last.online_s) == ("holidays", pytest.approx(2.0))
    await registry.pass_time(20.0)
    assert registry.state_of("ada") == NODE_STATE_LEFT


async def test_goodbye_is_refused_for_a_lease_that_never_was_or_was_interrupted(registry: Any) -> None:
    with pytest.raises(NotFoundError):
        await registry.core.registrar.deregister("lease-unknown", "")
    session = await registry.register()
    await registry.pass_time(11.0)
    with pytest.raises(NotFoundError):
        await registry.core.registrar.deregister(session.session_id, "")


async def test_a_drain_is_told_once_and_outlives_session_and_restart(registry: Any) -> None:
    session = await registry.register()
    await registry.core.registrar.drain("ada", undo=False)
    await registry.core.registrar.drain(session.node_id, undo=False)
    assert (await registry.kinds()).count(NODE_EVENT_KIND_DRAIN_CHANGED) == 1
    await registry.restart()
    await registry.register()
    assert registry.core.table.find("ada").record.draining
    await registry.core.registrar.drain("ada", undo=True)
    assert not registry.core.table.find("ada").record.draining


async def test_a_new_measurement_is_told_once_and_kept_over_a_restart(registry: Any) -> None:
    await registry.register()
    member, speed = registry.core.table.find("ada"), MachineSpeed(training_gflops=7.5, heartbeat_s=0.002)
    for _ in range(2):
        await registry.core.registrar.note_speed(member, speed)
    assert (await registry.kinds()).count(NODE_EVENT_KIND_MEASURED) == 1
    await registry.restart()
    assert registry.core.table.find("ada").record.spec.speed == speed
    with pytest.raises(InvalidArgumentError, match=r"speed\.heartbeat_s"):
        await registry.core.registrar.note_speed(member, MachineSpeed(heartbeat_s=-1.0))


async def test_an_unknown_node_gets_the_nearest_names(registry: Any) -> None:
    await registry.register("workshop-1")
    with pytest.raises(NotFoundError, match="Did you mean workshop-1"):
        await registry.core.registrar.drain("workshop-2", undo=False)


async def test_beats_that_make_no_sense_are_refused_and_change_nothing(registry: Any) -> None:
    session = await registry.register()
    with pytest.raises(InvalidArgumentError, match="incarnation"):
        registry.hear(session.session_id, incarnation=2**63)
    assert registry.core.table.find("ada").record.incarnation == 1


async def fill_up(registry: Any, labels: dict[str, str]) -> None:
    """Registers nodes one after the other, at most as many as the registry takes."""
    for number in range(99):
        await registry.register(f"bob-{number}", labels=labels)


async def test_a_full_disk_changes_nothing_and_the_registry_goes_on_once_there_is_room(registry: Any) -> None:
    session = await registry.register("ada")
    registry.pragma(f"max_page_count={registry.pragma('page_count')}")
    labels = {str(n): "x" * 60 for n in range(32)}
    with pytest.raises(ResourceExhaustedError, match="disk is full"):
        await fill_up(registry, labels)
    known, told = len(registry.core.table), len(await registry.events())
    assert told == known
    with pytest.raises(ResourceExhaustedError):
        await registry.register("ada", labels=labels)
    assert (await registry.beat(session.session_id)).record.state == NODE_STATE_ALIVE
    registry.pragma("max_page_count=100000")
    await registry.register("carl")
    assert len(await registry.events()) == known + 1


async def test_a_caller_that_gives_up_leaves_no_half_made_change(registry: Any) -> None:
    asking = asyncio.create_task(registry.register("ada"))
    await asyncio.sleep(0)
    asking.cancel()
    await registry.core.work.wait_all()
    assert asking.cancelled() or asking.cancelling()
    assert [member.record.name for member in registry.core.table.after("", 10)] == ["ada"]
    assert await registry.kinds() == [NODE_EVENT_KIND_REGISTERED]


async def test_the_limit_of_nodes_refuses_newcomers_but_not_the_known(registry: Any) -> None:
    for number in range(100):
        await registry.register(f"n{number}")
    with pytest.raises(ResourceExhaustedError, match="node_limit"):
        await registry.register("one-more")
    await registry.register("n5")
