"""Who holds an artifact: told by the nodes, forgotten with their sessions, bounded."""

import hashlib
import random
from collections.abc import Sequence

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from memory_registry import MemoryRegistry

from peerloom.errors import (
    FailedPreconditionError,
    InvalidArgumentError,
    NotFoundError,
    ResourceExhaustedError,
)
from peerloom.services.registry.discovery import artifact_index as module
from peerloom.services.registry.discovery.artifact_index import ArtifactIndex
from peerloom.v1.registry_pb2 import AdvertiseArtifactsRequest

CHANCE = random.Random(1)


def digest(number: int) -> bytes:
    return hashlib.sha256(str(number).encode()).digest()


def told(
    lease: str, version: int, base: int, added: Sequence[int] = (), removed: Sequence[int] = ()
) -> AdvertiseArtifactsRequest:
    return AdvertiseArtifactsRequest(
        lease_id=lease,
        version=version,
        base_version=base,
        added=[digest(one) for one in added],
        removed=[digest(one) for one in removed],
    )


def names(registry: MemoryRegistry, number: int) -> list[str]:
    return [one.record.name for one in registry.core.artifacts.find(digest(number).hex(), 0, CHANCE)[0]]


async def test_changes_build_on_each_other(registry: MemoryRegistry) -> None:
    lease = (await registry.register("ada")).session_id
    assert registry.advertise(told(lease, 3, 0, [1, 2])) == 2
    assert registry.advertise(told(lease, 4, 3, [5], [1])) == 2
    assert (names(registry, 1), names(registry, 2), names(registry, 5)) == ([], ["ada"], ["ada"])
    assert registry.core.artifacts.version(registry.core.table.find("ada")) == 4
    assert registry.advertise(told(lease, 9, 0, [1])) == 1
    assert (names(registry, 1), names(registry, 2)) == (["ada"], [])


async def test_a_change_on_an_unknown_version_is_refused_and_says_what_to_do(
    registry: MemoryRegistry,
) -> None:
    lease = (await registry.register("ada")).session_id
    with pytest.raises(FailedPreconditionError, match="Tell all, with base_version 0"):
        registry.advertise(told(lease, 8, 7, [1]))
    assert names(registry, 1) == []


async def test_a_session_s_end_forgets_what_its_node_told(registry: MemoryRegistry) -> None:
    lease = (await registry.register("ada")).session_id
    registry.advertise(told(lease, 1, 0, [1]))
    await registry.core.registrar.deregister(lease, "")
    assert names(registry, 1) == []
    with pytest.raises(NotFoundError, match="register again"):
        registry.advertise(told(lease, 2, 1, [2]))
    again = (await registry.register("ada")).session_id
    assert registry.core.artifacts.version(registry.core.table.find("ada")) == 0
    registry.advertise(told(again, 2, 0, [2]))
    assert names(registry, 2) == ["ada"]


async def test_a_restart_forgets_all_and_the_beats_show_it(registry: MemoryRegistry) -> None:
    lease = (await registry.register("ada")).session_id
    registry.advertise(told(lease, 1, 0, [1]))
    await registry.restart()
    member = await registry.beat(lease)
    assert registry.core.artifacts.version(member) == 0
    assert names(registry, 1) == []


async def test_the_suspected_come_last_and_the_list_is_bounded(registry: MemoryRegistry) -> None:
    leases = [(await registry.register(f"node{number}")).session_id for number in range(30)]
    for lease in leases:
        registry.advertise(told(lease, 1, 0, [1]))
    await registry.pass_time(2.0)
    for lease in leases[:10]:
        await registry.beat(lease)
    await registry.pass_time(1.5)
    found, count = registry.core.artifacts.find(digest(1).hex(), 12, CHANCE)
    assert (len(found), count) == (12, 30)
    assert {one.record.name for one in found[:10]} == {f"node{number}" for number in range(10)}


async def test_what_is_malformed_or_too_much_is_refused(
    registry: MemoryRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    lease = (await registry.register("ada")).session_id
    member, artifacts = registry.core.table.of_lease(lease), ArtifactIndex(total_limit=3)
    with pytest.raises(InvalidArgumentError, match="32 bytes"):
        artifacts.advertise(member, AdvertiseArtifactsRequest(lease_id=lease, version=1, added=[b"short"]))
    with pytest.raises(InvalidArgumentError, match="version"):
        artifacts.advertise(member, told(lease, 0, 0, [1]))
    with pytest.raises(ResourceExhaustedError, match="of all nodes"):
        artifacts.advertise(member, told(lease, 1, 0, range(4)))
    monkeypatch.setattr(module, "NODE_LIMIT", 2)
    with pytest.raises(ResourceExhaustedError, match="used last"):
        artifacts.advertise(member, told(lease, 1, 0, range(3)))
    with pytest.raises(InvalidArgumentError, match="limit"):
        artifacts.find(digest(1).hex(), 101, CHANCE)
    with pytest.raises(InvalidArgumentError, match="64 lower-case"):
        artifacts.find("x", 1, CHANCE)


# Each example's registration ends the session of the one before.
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(
    changes=st.lists(
        st.tuples(st.booleans(), st.frozensets(st.integers(0, 5)), st.frozensets(st.integers(0, 5))),
        max_size=20,
    )
)
async def test_both_ways_to_look_agree_with_a_plain_set(
    registry: MemoryRegistry, changes: list[tuple[bool, frozenset[int], frozenset[int]]]
) -> None:
    lease = (await registry.register("ada")).session_id
    held: set[int] = set()
    version = registry.core.artifacts.version(registry.core.table.find("ada"))
    for whole, added, removed in changes:
        base = 0 if whole else version
        held = (set() if whole or not version else held - removed) | added
        version += 1
        request = told(lease, version, base, sorted(added), sorted(removed))
        assert registry.advertise(request) == len(held)
        assert {number for number in range(6) if names(registry, number)} == held
