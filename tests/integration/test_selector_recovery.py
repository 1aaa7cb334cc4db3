"""What the selector still knows after deaths: its own, the registry's, and a registry database's."""

import asyncio
import math
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from conftest import StartService
from selector_system import (
    LIMIT_S,
    NOT_SERVING,
    SERVING,
    System,
    evidence,
    formula,
)

from peerloom.errors import UnavailableError
from peerloom.v1 import selector_pb2


@pytest.fixture
async def system(start_service: StartService, tmp_path: Path) -> AsyncIterator[System]:
    found = System(start_service, tmp_path)
    yield found
    await found.close()


FAULT = """
import os, signal
from peerloom.services.selector.store import SelectorStore

stored = SelectorStore.{method}

def killed(self, *arguments):
    {commit}
    os.kill(os.getpid(), signal.SIGKILL)

SelectorStore.{method} = killed
"""
COMMIT = "stored(self, *arguments)"


def fault(folder: Path, method: str, commit: str) -> dict[str, str]:
    """The environment of a process that kills itself when it stores something, after `commit`."""
    folder.mkdir()
    (folder / "sitecustomize.py").write_text(FAULT.format(method=method, commit=commit))
    return {"PYTHONPATH": str(folder)}


@pytest.mark.parametrize(("commit", "applied_by_repeat"), [(COMMIT, 0), ("pass", 1)])
async def test_evidence_counts_once_when_killed_before_the_answer(
    system: System, tmp_path: Path, commit: str, applied_by_repeat: int
) -> None:
    """SIGKILL strikes between commit and answer, or before the commit; the reporter repeats."""
    node_id = (await system.register("a")).node_id
    system.start_selector(**fault(tmp_path / "fault", "report", commit))
    fact = evidence("only-once", node_id)
    with pytest.raises(UnavailableError):
        await system.report(fact)
    assert system.selector_process.process.wait(LIMIT_S) == -9
    await system.start_informed_selector()
    assert await system.report(fact) == applied_by_repeat
    assert await system.report(fact) == 0
    found = await system.belief("a")
    assert (found.updates, found.terms.trainings) == (1, 1)


async def test_sessions_that_end_count_once_over_the_selector_s_death(system: System, tmp_path: Path) -> None:
    """The selector dies right after it committed the events, and reads on from its cursor."""
    system.start_selector(**fault(tmp_path / "fault", "follow", COMMIT))
    polite = await system.register("polite")
    await asyncio.to_thread(system.selector_process.process.wait, LIMIT_S)
    await system.leave(polite.lease_id)
    await system.register("rude")
    await system.register("rude")  # comes back with its key while its session is open: it had crashed
    for _ in range(2):
        await system.start_informed_selector()
        left, dropped = await system.belief("polite"), await system.belief("rude")
        assert (left.updates, left.terms.interruptions) == (1, 0)
        assert left.evidence.kind == selector_pb2.EVIDENCE_KIND_SESSION_ENDED
        assert (dropped.updates, dropped.terms.interruptions) == (1, 1)
        assert dropped.evidence.kind == selector_pb2.EVIDENCE_KIND_INTERRUPTION
        assert dropped.evidence.evidence_id.startswith("registry/")
        assert [formula(b.terms) for b in (left, dropped)] == [left.belief, dropped.belief]
        system.selector_process.kill()


async def test_events_reach_a_running_selector(system: System) -> None:
    system.start_selector()
    node = await system.register("late")
    await system.until(lambda found: found.updates == 0, "late")
    await system.leave(node.lease_id)
    found = await system.until(lambda found: found.updates == 1, "late")
    assert found.terms.time_score == pytest.approx(math.log(found.evidence.online_s + 1))
    assert (await system.select()).candidates == 0


async def test_without_the_registry_it_knows_the_roster_and_says_that_it_is_not_well(system: System) -> None:
    await system.register("a", slots=3)
    await system.start_informed_selector()
    address = system.registry_process.address
    system.registry_process.kill()
    await system.becomes(NOT_SERVING)
    system.selector_process.kill()
    system.start_selector()
    assert [(b.name, b.belief) for b in await system.beliefs()] == [("a", 0)]
    assert [(n.name, n.slots) for n in (await system.select()).nodes] == [("a", 3)]
    await system.becomes(NOT_SERVING)
    system.start_registry("registry", listen=address)
    await system.becomes(SERVING)
    node = await system.register("b")
    await system.until(lambda found: found.node_id == node.node_id, "b")


@pytest.mark.parametrize("newcomers", [0, 1, 5])
async def test_a_new_registry_database_is_read_from_its_beginning(system: System, newcomers: int) -> None:
    """Its log may be empty, shorter or longer than the one that was read; old evidence stays counted once."""
    old = await system.register("a")
    await system.leave(old.lease_id)
    await system.register("b")
    await system.start_informed_selector()
    before = {b.node_id: b.belief for b in await system.beliefs()}
    address = system.registry_process.address
    system.selector_process.kill()
    system.registry_process.kill()
    system.start_registry("another", listen=address)
    for number in range(newcomers):
        await system.register(f"new-{number}")
    system.start_selector()
    await system.register("last")
    await system.until(lambda _: True, "last")
    chosen = await system.select()
    names = {f"new-{number}" for number in range(newcomers)} | {"last"}
    assert {node.name for node in chosen.nodes} == names
    assert [e.count for e in chosen.exclusions] == [2]
    assert {b.node_id: b.belief for b in await system.beliefs() if b.name in "ab"} == before
    assert "registry_changed" in system.selector_process.log()
