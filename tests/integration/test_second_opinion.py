"""Second opinions on a system with a door, where one owner's inference server answers with other parameters.

The liar is a real server whose file of the model was overwritten after it was checked: it lies about nothing
but the outputs. What is expected is what plain torch computes.
"""

import asyncio
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import torch
from door_system import DoorSystem
from inference_parts import make_model
from node_agent_parts import StartService
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from peerloom import AsyncClient, Belief
from peerloom.artifacts.transfer import put_file
from peerloom.kit.dialing import Dialer
from peerloom.kit.identity import Identity
from peerloom.v1.artifact_pb2 import Artifact, ArtifactKind
from peerloom.v1.inference_pb2 import LoadModelRequest
from peerloom.v1.node_agent_pb2 import StartInferenceRequest
from peerloom.v1.registry_pb2 import ListHoldersRequest
from peerloom.worker.task import load_task

LIMIT_S = 400.0
OWNERS = ("ann", "bob", "cid")
LIAR = "node-1"
pytestmark = pytest.mark.timeout(1000)


@dataclass(frozen=True)
class LyingSystem:
    """Three nodes of three owners that hold a model, of which node-1 lies; what plain torch answers."""

    door: DoorSystem
    digest: str
    inputs: np.ndarray
    expected: np.ndarray

    async def client(self, owner: str) -> AsyncClient:
        return self.door.client(await self.door.admit("user", owner))


@pytest.fixture
async def lying(start_service: StartService, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> LyingSystem:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    async with asyncio.timeout(LIMIT_S):
        door = DoorSystem(tmp_path, start_service)
        started = await door.start_all(OWNERS)
        path = make_model(tmp_path, "digits", {}, (1, 8, 8), "float32")
        dialer = Dialer(Identity(door.operator_file))
        for name in ("node-1", "node-2", "node-3"):
            async with dialer.artifacts(str(started[name].address)) as agent:
                artifact = Artifact(kind=ArtifactKind.ARTIFACT_KIND_MODEL, name=path.name)
                digest = (await put_file(agent, path, artifact)).digest
        await make_liar(dialer, str(started[LIAR].address), tmp_path / LIAR, digest)
        async with dialer.registry(door.address) as registry:
            held = 0
            while held < 3:  # agents advertise what they hold soon after they got it
                answer = await registry.call(registry.stub.ListHolders, ListHoldersRequest(digest=digest))
                held = len(answer.holders)
    inputs = torch.randn(5, 1, 8, 8, generator=torch.Generator().manual_seed(1))
    model = load_task("digits", {}).model().eval()
    model.load_state_dict(load_file(path))
    with torch.inference_mode():
        expected = model(inputs).numpy()
    return LyingSystem(door, digest, inputs.numpy(), expected)


async def make_liar(dialer: Dialer, address: str, state: Path, digest: str) -> None:
    """Has the server check its file, and then builds from another one."""
    async with dialer.node_agent(address) as agent:
        served_at = (await agent.call(agent.stub.StartInference, StartInferenceRequest(), 90.0)).address
    async with dialer.inference(served_at) as server:
        request = LoadModelRequest(digest=digest, describe_only=True)
        await server.call(server.stub.LoadModel, request, 90.0)
    put_other_parameters(state, digest)


def put_other_parameters(state: Path, digest: str) -> None:
    """Into the file that the server checked, and nowhere else."""
    [kept] = [found for found in state.rglob(f"{digest}.safetensors") if "inference" in str(found)]
    with safe_open(kept, "pt") as opened:
        described = opened.metadata()
        other = {name: -3 * opened.get_tensor(name) for name in opened.keys()}  # noqa: SIM118 - no mapping
    kept.chmod(0o600)
    save_file(other, kept, described)


async def beliefs(client: AsyncClient) -> dict[str, Belief]:
    return {one.name: one for one in await client.beliefs()}


async def told_of(client: AsyncClient, node: str, kind: str) -> int:
    return sum(
        update.evidence is not None and update.evidence.kind == kind
        for update in await client.belief_history(node)
    )


def ask_first(client: AsyncClient, node: str, patch: pytest.MonkeyPatch) -> None:
    """Whoever is best by the figures: this client asks `node` before all others."""
    replicas = client._inference().replicas
    known = replicas.known

    async def first(digest: str, excluded: list[str] = [], first: str = "") -> object:  # noqa: B006
        return await known(digest, excluded, node)

    patch.setattr(replicas, "known", first)


async def test_who_waits_gets_the_truth_and_three_users_prove_the_liar(
    lying: LyingSystem, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with asyncio.timeout(LIMIT_S), await lying.client("ann") as own:
        for voices, owner in enumerate(("dan", "eve", "fay"), 1):
            async with await lying.client(owner) as client:
                ask_first(client, LIAR, monkeypatch)
                alone = await client.infer(
                    lying.digest, lying.inputs, "remote", second_opinion="off", hedge=False
                )
                assert alone.nodes == (LIAR,)
                assert not np.allclose(alone.outputs, lying.expected, rtol=0.1), "it does lie"
                answer = await client.infer(
                    lying.digest, lying.inputs, "remote", second_opinion="wait", hedge=False
                )
                np.testing.assert_allclose(answer.outputs, lying.expected, rtol=1e-4, atol=1e-5)
                assert {*answer.nodes, *answer.confirmed_by} == {"node-2", "node-3"}
                assert answer.deviating == (LIAR,)
                again = await client.infer(lying.digest, lying.inputs, "remote", second_opinion="off")
                assert again.nodes[0] != LIAR, "this client asks it no more"
                while await told_of(own, LIAR, "wrong_answer") < voices:
                    pass  # each look is a call that lets the evidence through
        found = await beliefs(own)
        assert found[LIAR].belief == -1_000_000
        assert min(found["node-2"].belief, found["node-3"].belief) > 0
        assert (
            await told_of(own, "node-2", "wrong_answer") == await told_of(own, "node-3", "wrong_answer") == 0
        )
        [reporter] = {
            update.evidence.reporter
            for update in await own.belief_history(LIAR)
            if update.evidence and update.evidence.kind == "wrong_answer"
        } - {"dan", "eve"}
        assert reporter == "fay"


async def test_in_the_background_the_first_answer_comes_at_once_and_its_liar_is_found(
    lying: LyingSystem, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is the default behind a door; a split model is checked as a whole, and none of its stages named."""
    async with asyncio.timeout(LIMIT_S), await lying.client("dan") as client:
        ask_first(client, LIAR, monkeypatch)
        first = await client.infer(lying.digest, lying.inputs, "remote", hedge=False)
        assert (first.nodes, first.confirmed_by, first.deviating) == ((LIAR,), (), ())
        while await told_of(client, LIAR, "wrong_answer") < 1:
            pass
        assert (await client.infer(lying.digest, lying.inputs, "remote")).nodes != (LIAR,)
    async with asyncio.timeout(LIMIT_S), await lying.client("eve") as client:
        ask_first(client, LIAR, monkeypatch)
        answer = await client.infer(lying.digest, lying.inputs, "split", stages=2, second_opinion="wait")
        np.testing.assert_allclose(answer.outputs, lying.expected, rtol=1e-4, atol=1e-5)
        assert LIAR in answer.deviating
        assert len(answer.deviating) == 2
        while await told_of(client, answer.deviating[1], "unfinished") < 1:
            pass
        assert await told_of(client, LIAR, "wrong_answer") == 1, "dan's alone"
