"""Who holds an artifact: told by the nodes, forgotten with their sessions, bounded."""

import hashlib
import random
from collections.abc import Sequence

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from registry_town import Town

from peerloom.errors import (
    FailedPreconditionError,
    InvalidArgumentError,
    NotFoundError,
    ResourceExhaustedError,
)
from peerloom.services.registry import holdings as module
from peerloom.services.registry.holdings import Holdings
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


def names(town: Town, number: int) -> list[str]:
    return [one.record.name for one in town.core.holdings.find(digest(number).hex(), 0, CHANCE)[0]]


async def test_changes_build_on_each_other(town: Town) -> None:
    lease = (await town.register("ada")).session_id
    assert town.core.holdings.advertise(told(lease, 3, 0, [1, 2])) == 2
    assert town.core.holdings.advertise(told(lease, 4, 3, [5], [1])) == 2
    assert (names(town, 1), names(town, 2), names(town, 5)) == ([], ["ada"], ["ada"])
    assert town.core.holdings.version(town.core.roster.find("ada")) == 4
    assert town.core.holdings.advertise(told(lease, 9, 0, [1])) == 1
    assert (names(town, 1), names(town, 2)) == (["ada"], [])


async def test_a_change_on_an_unknown_version_is_refused_and_says_what_to_do(town: Town) -> None:
    lease = (await town.register("ada")).session_id
    with pytest.raises(FailedPreconditionError, match="Tell all, with base_version 0"):
        town.core.holdings.advertise(told(lease, 8, 7, [1]))
    assert names(town, 1) == []


async def test_a_session_s_end_forgets_what_its_node_told(town: Town) -> None:
    lease = (await town.register("ada")).session_id
    town.core.holdings.advertise(told(lease, 1, 0, [1]))
    await town.core.membership.deregister(lease, "")
    assert names(town, 1) == []
    with pytest.raises(NotFoundError, match="register again"):
        town.core.holdings.advertise(told(lease, 2, 1, [2]))
    again = (await town.register("ada")).session_id
    assert town.core.holdings.version(town.core.roster.find("ada")) == 0
    town.core.holdings.advertise(told(again, 2, 0, [2]))
    assert names(town, 2) == ["ada"]


async def test_a_restart_forgets_all_and_the_beats_show_it(town: Town) -> None:
    lease = (await town.register("ada")).session_id
    town.core.holdings.advertise(told(lease, 1, 0, [1]))
    await town.restart()
    member = await town.beat(lease)
    assert town.core.holdings.version(member) == 0
    assert names(town, 1) == []


async def test_the_suspected_come_last_and_the_list_is_bounded(town: Town) -> None:
    leases = [(await town.register(f"node{number}")).session_id for number in range(30)]
    for lease in leases:
        town.core.holdings.advertise(told(lease, 1, 0, [1]))
    await town.pass_time(2.0)
    for lease in leases[:10]:
        await town.beat(lease)
    await town.pass_time(1.5)
    found, count = town.core.holdings.find(digest(1).hex(), 12, CHANCE)
    assert (len(found), count) == (12, 30)
    assert {one.record.name for one in found[:10]} == {f"node{number}" for number in range(10)}


async def test_what_is_malformed_or_too_much_is_refused(town: Town, monkeypatch: pytest.MonkeyPatch) -> None:
    lease = (await town.register("ada")).session_id
    holdings = Holdings(town.core.roster, total_limit=3)
    with pytest.raises(InvalidArgumentError, match="32 bytes"):
        holdings.advertise(AdvertiseArtifactsRequest(lease_id=lease, version=1, added=[b"short"]))
    with pytest.raises(InvalidArgumentError, match="version"):
        holdings.advertise(told(lease, 0, 0, [1]))
    with pytest.raises(ResourceExhaustedError, match="of all nodes"):
        holdings.advertise(told(lease, 1, 0, range(4)))
    monkeypatch.setattr(module, "NODE_LIMIT", 2)
    with pytest.raises(ResourceExhaustedError, match="used last"):
        holdings.advertise(told(lease, 1, 0, range(3)))
    with pytest.raises(InvalidArgumentError, match="limit"):
        holdings.find(digest(1).hex(), 101, CHANCE)
    with pytest.raises(InvalidArgumentError, match="64 lower-case"):
        holdings.find("x", 1, CHANCE)


# Each example's registration ends the session of the one before.
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(
    changes=st.lists(
        st.tuples(st.booleans(), st.frozensets(st.integers(0, 5)), st.frozensets(st.integers(0, 5))),
        max_size=20,
    )
)
async def test_both_ways_to_look_agree_with_a_plain_set(
    town: Town, changes: list[tuple[bool, frozenset[int], frozenset[int]]]
) -> None:
    lease = (await town.register("ada")).session_id
    held: set[int] = set()
    version = town.core.holdings.version(town.core.roster.find("ada"))
    for whole, added, removed in changes:
        base = 0 if whole else version
        held = (set() if whole or not version else held - removed) | added
        version += 1
        request = told(lease, version, base, sorted(added), sorted(removed))
        assert town.core.holdings.advertise(request) == len(held)
        assert {number for number in range(6) if names(town, number)} == held
