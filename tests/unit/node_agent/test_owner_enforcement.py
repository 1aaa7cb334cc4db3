"""The owner's policy over scripted workers and a scripted machine: who is asked to leave, and when."""

import asyncio
from pathlib import Path

import pytest
from agent_parts import LIMIT_S, World

from peerloom.services.node_agent.owner.policy import BUSY_S, HostUsage, Hours, OwnerLimits

NIGHT = OwnerLimits(hours=(Hours.parse("22:00-07:00"),))
BY_DAY, BY_NIGHT = HostUsage(minute=600, others_load=0.0), HostUsage(minute=1400, others_load=0.0)


@pytest.fixture
async def night(tmp_path: Path) -> World:
    """A machine that is lent by night, and it is night."""
    world = World(tmp_path, NIGHT)
    world.meter.usage = BY_NIGHT
    await world.policy.look()
    return world


async def look_and_act(world: World, passed_s: float = 0.0) -> None:
    world.clock.advance(passed_s)
    await world.policy.look()
    await world.policy.act()


async def test_what_is_withheld_is_applied_once_and_lent_again(night: World) -> None:
    assert night.policy.withheld == ""
    night.meter.usage = BY_DAY
    for _ in range(3):
        await look_and_act(night)
    reason = "It is 10:00, and the owner lends the machine 22:00-07:00."
    assert night.withheld == [reason]
    assert night.policy.why_not("job-1") == night.status.withheld == reason
    night.meter.usage = BY_NIGHT
    await look_and_act(night)
    assert night.withheld == [reason, ""]


async def test_workers_are_asked_once_let_stay_or_made_to_leave(night: World) -> None:
    first, second = await night.start("a", "b")
    night.meter.usage = BY_DAY
    await look_and_act(night)
    await look_and_act(night, 1.0)
    reason = "leave: It is 10:00, and the owner lends the machine 22:00-07:00. (10 s)"
    assert first.told == second.told == [reason]
    night.meter.usage = BY_NIGHT
    await look_and_act(night, 1.0)
    assert first.told[1:] == ["stay"]
    night.meter.usage = BY_DAY
    await look_and_act(night, 1.0)
    first.end(0)
    await look_and_act(night, 29.9)
    assert second.told == [reason, "stay", reason]
    await look_and_act(night, 0.1)
    await asyncio.sleep(0)
    assert second.told[3:] == ["stop (2 s)"]


async def test_a_drain_asks_without_a_limit(tmp_path: Path) -> None:
    world = World(tmp_path)
    [worker] = await world.start("a")
    world.status.note_draining(True)
    await look_and_act(world)
    await look_and_act(world, 1e6)
    assert worker.told == ["leave: its node is being drained (10 s)"]
    world.status.note_draining(False)
    await look_and_act(world)
    assert worker.told[1:] == ["stay"]


async def test_the_newest_worker_that_does_not_fit_leaves_and_its_job_gets_nothing_more(
    tmp_path: Path,
) -> None:
    """100 and 101 use 600 bytes each of 1,000: the newer one goes, and no other for the time it takes."""
    world = World(tmp_path, memory_limit_bytes=1000)
    [old] = await world.start("a")
    [new] = await world.start("b", job_id="job-2")
    world.meter.memory = {100: 600, 101: 600}
    await look_and_act(world)
    await look_and_act(world, 1.0)
    reason = "The workers use 1,200 bytes of memory; the owner lends 1,000."
    assert (old.told, new.told) == ([], [f"leave: {reason} (10 s)"])
    assert (world.policy.why_not("job-1"), world.policy.why_not("job-2")) == ("", reason)
    world.meter.memory = {100: 600, 101: 10}
    await look_and_act(world)
    assert new.told[1:] == [], "it would only grow again"


async def test_load_of_others_takes_the_machine_back_after_a_while(tmp_path: Path) -> None:
    limits = OwnerLimits(only_idle=True, idle_load=0.5, idle_wait_s=60.0)
    world = World(tmp_path, limits)
    assert "has not been idle for 60 s" in world.policy.withheld
    await look_and_act(world)
    await look_and_act(world, 60.0)
    assert world.policy.withheld == ""
    [worker] = await world.start("a")
    world.meter.usage = HostUsage(minute=0, others_load=0.9)
    await look_and_act(world)
    assert worker.told == []
    await look_and_act(world, BUSY_S)
    assert "others use 90%" in worker.told[0]


async def test_a_drain_is_acted_upon_at_once_and_the_first_state_is_applied(tmp_path: Path) -> None:
    """Nothing waits for the next look a second later: the event that a drain sets is what wakes it."""
    world = World(tmp_path)
    [worker] = await world.start("a")
    keeping = asyncio.create_task(world.policy.keep())
    async with asyncio.timeout(LIMIT_S):
        world.status.note_draining(True)
        await worker.is_asked.wait()
    keeping.cancel()
    assert world.withheld == [""]
    assert worker.told == ["leave: its node is being drained (10 s)"]
