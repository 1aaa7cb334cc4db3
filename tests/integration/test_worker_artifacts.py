"""A worker's files lie with its agent, which may be away for a moment: real agents that are killed."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from exchange_parts import bytes_of

from peerloom.artifacts import transfer
from peerloom.errors import NotFoundError, UnavailableError
from peerloom.kit.clock import ManualClock
from peerloom.v1.artifact_pb2 import ArtifactKind
from peerloom.worker import agent_artifacts
from peerloom.worker.agent_artifacts import PATIENCE_S, fetch_artifact, store_artifact
from peerloom.worker.assignment import Assignment, Work

# The fixture of conftest; conftest modules can't be imported by name safely.
StartService = Callable[..., Any]
CONTENT = bytes_of(5, 300_000)
KIND = ArtifactKind.ARTIFACT_KIND_CHECKPOINT
NOWHERE = "127.0.0.1:1"


def assignment_for(address: str) -> Assignment:
    return Assignment("worker-1", "job-1", Work(NOWHERE, "digits"), address, 0, "cpu", 0, "", 1, "", "5" * 64)


def test_an_agent_that_is_started_again_is_waited_for(
    start_service: StartService, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It died before it was asked for a checkpoint, and comes back when the worker has found it away."""
    registry = start_service("registry")
    flags = ("--name", "node-1", "--registry", registry.address, "--slots", "0")
    state = ("--state", str(tmp_path / "node-1"))
    agent = start_service("node_agent", *state, *flags)
    assignment, path = assignment_for(agent.address), tmp_path / "checkpoint"
    path.write_bytes(CONTENT)
    stored = store_artifact(assignment, path, KIND, "step-4")
    agent.kill()
    pauses: list[float] = []

    async def come_back(pause_s: float) -> None:
        if not pauses:
            place = ("--listen", agent.address)
            await asyncio.to_thread(start_service, "node_agent", *state, *flags, *place)
        pauses.append(pause_s)

    monkeypatch.setattr(agent_artifacts, "_pause", come_back)
    assert fetch_artifact(assignment, stored.digest) == CONTENT
    assert pauses, "it was found away"
    with pytest.raises(NotFoundError):
        fetch_artifact(assignment, "0" * 64)


def test_one_that_stays_away_is_not_waited_for_any_longer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, clock, slept = tmp_path / "checkpoint", ManualClock(), list[float]()
    path.write_bytes(CONTENT)

    async def note(pause_s: float) -> None:
        slept.append(pause_s)
        clock.advance(pause_s)

    monkeypatch.setattr(transfer, "ATTEMPTS", 1)  # it pauses by the system's clock
    monkeypatch.setattr(agent_artifacts, "_clock", clock)
    monkeypatch.setattr(agent_artifacts, "_pause", note)
    with pytest.raises(UnavailableError):
        store_artifact(assignment_for(NOWHERE), path, KIND, "step-4")
    assert not slept, "a checkpoint that can't be stored is made again a little later"
    with pytest.raises(UnavailableError, match="can't be reached"):
        fetch_artifact(assignment_for(NOWHERE), "0" * 64)
    assert PATIENCE_S - 1 <= sum(slept) <= PATIENCE_S
