"""What the registry tells of itself, after a short history."""

from memory_registry import TIMING, MemoryRegistry

from peerloom.services.registry.registry_metrics import RegistryMetrics
from peerloom.v1.registry_pb2 import SERVICE_KIND_SELECTOR


async def told(registry: MemoryRegistry) -> dict[str, dict[tuple[str, ...], float]]:
    """Each metric's numbers by its name."""
    found = await RegistryMetrics(registry.core).collect()
    return {one.metric.name: dict(one.values) for one in found}  # type: ignore[misc]  # no histogram here


async def test_nodes_are_counted_by_state_and_what_happened_is_counted_once(registry: MemoryRegistry) -> None:
    ada = await registry.register("ada")
    await registry.register("bob")
    eve = await registry.register("eve")
    registry.core.announcements.announce(SERVICE_KIND_SELECTOR, "10.0.0.2:7401")
    for _ in range(3):
        await registry.beat(ada.session_id)
    await registry.core.registrar.deregister(eve.session_id, "")
    found = await told(registry)
    states = {"alive": 2, "suspect": 0, "dead": 0, "left": 1}
    assert found["peerloom_registry_nodes"] == {(state,): count for state, count in states.items()}
    assert found["peerloom_registry_heartbeats_received_total"] == {(): 3}
    assert found["peerloom_registry_announced_services"] == {("selector",): 1, ("trainer",): 0}
    assert found["peerloom_registry_newest_event"] == {(): 4}, "three came, one left"
    assert found["peerloom_registry_interruptions_total"] == {(): 0}, "a goodbye is none"

    await registry.pass_time(TIMING.dead_after_s + 1)
    found = await told(registry)
    assert found["peerloom_registry_nodes"][("dead",)] == 2
    assert found["peerloom_registry_interruptions_total"] == {(): 2}


async def test_watches_are_counted_while_they_are_open(registry: MemoryRegistry) -> None:
    await registry.register("ada")
    watch = registry.core.feed.follow(0, stop_at_present=False)
    assert (await anext(aiter(watch))).sequence == 1
    assert (await told(registry))["peerloom_registry_watchers"] == {(): 1}
    await watch.aclose()  # type: ignore[attr-defined]  # it is a generator
    assert (await told(registry))["peerloom_registry_watchers"] == {(): 0}
