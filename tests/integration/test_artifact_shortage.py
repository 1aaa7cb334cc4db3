"""A node without room for the trained model leaves the job to those that have some: real services."""

import asyncio
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from peerloom import Client, Embedded
from peerloom.artifacts.transfer import put_file
from peerloom.client.types import GenerationFormed, WorkerLost
from peerloom.kit.dialing import Dialer
from peerloom.v1.artifact_pb2 import Artifact, PinArtifactRequest

# The fixture of conftest; conftest modules can't be imported by name safely.
StartService = Callable[..., Any]
LIMIT_S = 120.0
pytestmark = pytest.mark.timeout(240)


async def fill(address: str, content: Path) -> None:
    """Has a node keep a file for good."""
    async with Dialer().artifacts(address) as agent:
        stored = await put_file(agent, content, Artifact(name="something"))
        await agent.call(agent.stub.PinArtifact, PinArtifactRequest(digest=stored.digest))


@pytest.mark.parametrize(
    ("limit_bytes", "reason"),
    [
        (10_000, "its disk has too little room for this job: [Errno 27] File too large"),
        (40_000, "don't fit: the artifact limit of 40,000 bytes leaves 20,000"),
    ],
)
def test_a_model_that_does_not_fit_is_stored_by_another_node(
    start_service: StartService,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    limit_bytes: int,
    reason: str,
) -> None:
    """25 kB; the node of rank 0, which has trained to the end, lets no file grow so long, or is half full."""
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parent), prepend=os.pathsep)
    monkeypatch.setenv("PEERLOOM_NODE_ARTIFACT_LIMIT_BYTES", str(limit_bytes))
    gate = tmp_path / "lent" / "gate"
    gate.parent.mkdir()
    (tmp_path / "content").write_bytes(bytes(20_000))
    with (
        Embedded(tmp_path / "state", (1,), data_roots=[gate.parent]) as system,
        Client(system.address) as client,
    ):
        monkeypatch.delenv("PEERLOOM_NODE_ARTIFACT_LIMIT_BYTES")
        if limit_bytes > 20_000:
            asyncio.run(fill(client.node("node-1").address, tmp_path / "content"))
        arguments = {"gate": str(gate)}
        job = client.train("held_task:Walking", requests=2, max_workers=2, epochs=4, arguments=arguments)
        ranks, lost = list[list[str]](), list[WorkerLost]()
        for event in job.watch():
            if isinstance(event, GenerationFormed):
                ranks.append([worker.node_name for worker in event.workers])
                if len(ranks) == 1:
                    roomy = ("--name", "roomy", "--state", str(tmp_path / "roomy"), "--slots", "1")
                    lent = ("--data-root", str(gate.parent))
                    start_service("node_agent", *roomy, *lent, "--registry", system.address)
                elif len(ranks[-1]) == 2:
                    gate.touch()
            if isinstance(event, WorkerLost):
                lost.append(event)
        result, found = job.result(LIMIT_S), job.status()
    assert result.succeeded, result.reason
    assert ["node-1", "roomy"] in ranks, "both have trained"
    assert [one.worker.node_name for one in lost] == ["node-1"]
    assert reason in lost[0].reason
    assert found.ledger is not None
    assert found.ledger.is_exact, found.ledger.verdict
    assert result.model_nodes == ("roomy",)
