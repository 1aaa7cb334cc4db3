"""Workers whose job no trainer watches are sent to the one that the registry says leads."""

from pathlib import Path

import pytest
from agent_parts import World

from peerloom.errors import UnavailableError
from peerloom.services.node_agent.workers.job_trainers import JobTrainer
from peerloom.services.node_agent.workers.leader_discovery import LeaderDiscovery
from peerloom.worker.assignment import TRAINER_FILE

JOB = "job-1"


class Registry:
    """Says who leads, and counts how often it is asked."""

    def __init__(self) -> None:
        self.leader: tuple[str, int] | None = ("b:1", 2)
        self.is_away, self.asked = False, 0

    async def leading_trainer(self) -> tuple[str, int] | None:
        self.asked += 1
        if self.is_away:
            raise UnavailableError("The registry is away.")
        return self.leader


@pytest.fixture
def registry() -> Registry:
    return Registry()


@pytest.fixture
async def world(tmp_path: Path) -> World:
    return World(tmp_path)


def told(world: World) -> list[str]:
    """Where each running worker was sent; empty: nowhere."""
    files = [worker.folder / TRAINER_FILE for worker in world.pool.running()]
    return [file.read_text().strip() if file.exists() else "" for file in files]


async def test_a_job_that_two_looks_find_unwatched_is_sent_to_the_leader(
    world: World, registry: Registry
) -> None:
    discovery = LeaderDiscovery(world.pool, registry.leading_trainer)
    await discovery.look()
    await world.start("a")
    await world.start("b", job_id="job-2")
    with world.pool.trainers.watching("job-2"):
        await discovery.look()
        assert (registry.asked, told(world)) == (0, ["", ""]), "its trainer may be about to come"
        await discovery.look()
    assert (registry.asked, told(world)) == (1, ["b:1", ""])


async def test_who_ended_or_is_watched_again_needs_no_leader(world: World, registry: Registry) -> None:
    [worker] = await world.start("a")
    discovery = LeaderDiscovery(world.pool, registry.leading_trainer)
    await discovery.look()
    with world.pool.trainers.watching(JOB):
        await discovery.look()
    await discovery.look()
    assert registry.asked == 0, "it was watched at the look before"
    worker.end(0)
    await anext(event async for event in world.pool.watch(JOB) if event and event.ended)
    await discovery.look()
    assert registry.asked == 0


async def test_without_registry_or_leader_or_with_a_deposed_one_they_stay_where_they_are(
    world: World, registry: Registry
) -> None:
    await world.start("a")
    await world.pool.follow(JOB, JobTrainer("c:1", 3))
    discovery = LeaderDiscovery(world.pool, registry.leading_trainer)
    await discovery.look()
    await discovery.look()
    assert (registry.asked, told(world)) == (1, ["c:1"]), "c leads since, and the registry doesn't know yet"
    registry.leader = None
    await discovery.look()
    registry.is_away = True
    await discovery.look()
    assert (registry.asked, told(world)) == (3, ["c:1"])
    registry.is_away, registry.leader = False, ("d:1", 4)
    await discovery.look()
    assert told(world) == ["d:1"]
