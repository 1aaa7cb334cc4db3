"""The three routes to an answer on a real system of four nodes: lost nodes, bad inputs, many clients."""

import asyncio
import os
import signal
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import torch
from inference_parts import TEXT_ARGUMENTS, inference_process, make_model, store
from safetensors.torch import load_file

from peerloom import AsyncClient, Embedded
from peerloom.client.artifacts import AsyncArtifacts
from peerloom.errors import (
    DataLossError,
    FailedPreconditionError,
    InvalidArgumentError,
    NotFoundError,
    PeerloomError,
    ResourceExhaustedError,
)
from peerloom.inference.client.local_model import cached_path
from peerloom.inference.server.building import read_blueprint
from peerloom.inference.trusted_modules import BY_USER, TrustedModules
from peerloom.kit.files import try_lock
from peerloom.worker.task import load_task

LIMIT_S = 60.0
pytestmark = pytest.mark.timeout(180)


@dataclass(frozen=True)
class Swarm:
    """A system, the digests of a model of digits and one of text, and what plain torch answers."""

    system: Embedded
    digits: str
    text: str
    inputs: np.ndarray
    expected: np.ndarray


@pytest.fixture(scope="module")
def swarm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Swarm]:
    """Only node-1 has the models: the others fetch them from it when they are asked."""
    folder = tmp_path_factory.mktemp("inference")
    with pytest.MonkeyPatch.context() as patch, Embedded(folder / "state", (0, 0, 0, 0)) as system:
        patch.setenv("XDG_CACHE_HOME", str(folder / "cache"))
        digits = make_model(folder, "digits", {}, (1, 8, 8), "float32")
        text = make_model(folder, "text", TEXT_ARGUMENTS, (96,), "int64")
        digests = [asyncio.run(store(system.addresses["node-1"], path)) for path in (digits, text)]
        inputs = torch.randn(37, 1, 8, 8, generator=torch.Generator().manual_seed(1))
        model = load_task("digits", {}).model().eval()
        model.load_state_dict(load_file(digits))
        with torch.inference_mode():
            expected = model(inputs).numpy()
        yield Swarm(system, digests[0], digests[1], inputs.numpy(), expected)


@pytest.fixture
async def client(swarm: Swarm) -> AsyncIterator[AsyncClient]:
    async with AsyncClient(swarm.system.address) as opened:
        yield opened


@pytest.mark.parametrize("mode", ["remote", "split", "local", "auto"])
async def test_every_way_gives_what_plain_torch_gives(swarm: Swarm, client: AsyncClient, mode: str) -> None:
    answer = await client.infer(swarm.digits, swarm.inputs, mode, stages=3 if mode == "split" else 0)  # type: ignore[arg-type]  # parametrized
    np.testing.assert_allclose(answer.outputs, swarm.expected, rtol=1e-4, atol=1e-5)
    assert len(answer.nodes) == {"remote": 1, "split": 3, "local": 0}.get(mode, len(answer.nodes))
    assert mode in ("auto", answer.mode)
    if mode == "auto":
        assert [each.mode for each in answer.estimates] == ["remote", "local", "split"]
        fastest = min((each for each in answer.estimates if each.seconds), key=lambda each: each.seconds or 0)
        assert answer.mode == fastest.mode
        assert answer.reason.startswith(f"{fastest.mode} takes")


async def test_who_computes_at_home_waits_for_a_file_that_another_client_is_fetching(
    swarm: Swarm, client: AsyncClient, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The other one dies in the middle: this one goes on by itself."""
    refused = asyncio.Event()

    class Watched(AsyncArtifacts):
        async def get(self, digest: str, path: str | Path) -> Path:
            try:
                return await super().get(digest, path)
            except FailedPreconditionError:
                refused.set()
                raise

    monkeypatch.setattr("peerloom.inference.client.local.AsyncArtifacts", Watched)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    path = cached_path(swarm.digits)
    path.parent.mkdir(parents=True)
    other = os.open(path.with_name(f".{path.name}.{swarm.digits[:12]}.part"), os.O_RDWR | os.O_CREAT)
    assert try_lock(other)
    async with asyncio.timeout(LIMIT_S):
        asking = asyncio.create_task(client.infer(swarm.digits, swarm.inputs, "local"))
        await refused.wait()
        os.close(other)
        answer = await asking
    np.testing.assert_allclose(answer.outputs, swarm.expected, rtol=1e-4, atol=1e-5)


async def test_nothing_is_asked_beside_a_model_that_computes_here(
    swarm: Swarm, client: AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The looks at the nodes for the next time come after the answer, which isn't theirs to delay."""
    asked = await client.infer(swarm.digits, swarm.inputs, "remote", hedge=False)
    await client.infer(swarm.digits, swarm.inputs, "local")
    inference = client._inference()
    known = await inference.replicas.known(swarm.digits)
    [met] = [one for one in known if one.node.name == asked.nodes[0]]
    model = await inference.local.model(swarm.digits)
    during: list[float] = []

    async def infer(inputs: np.ndarray) -> tuple[np.ndarray, float]:
        for _ in range(20):  # each lets the client's other tasks run
            await client.nodes()
        during.append(met.looked_s)
        return inputs, 1.0

    monkeypatch.setattr("peerloom.inference.client.replicas.PUT_OFF_S", LIMIT_S)
    monkeypatch.setattr("peerloom.inference.client.router.choose", lambda _: ("local", "the test wants it"))
    monkeypatch.setattr(model, "infer", infer)
    met.looked_s = 0.0
    await client.infer(swarm.digits, swarm.inputs, "auto")
    assert during == [0.0]
    async with asyncio.timeout(LIMIT_S):
        while not met.looked_s:
            inference.replicas.look([met])
            await client.nodes()


async def test_an_estimate_holds_for_a_moment_and_for_its_size_of_batch(
    swarm: Swarm, client: AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("peerloom.inference.client.estimator.HOLDS_S", LIMIT_S)
    first = await client.infer(swarm.digits, swarm.inputs)
    assert (await client.infer(swarm.digits, swarm.inputs)).estimates is first.estimates
    other = await client.infer(swarm.digits, swarm.inputs[:5])
    assert other.estimates != first.estimates
    monkeypatch.setattr("peerloom.inference.client.estimator.HOLDS_S", 0.0)
    assert (await client.infer(swarm.digits, swarm.inputs)).estimates is not first.estimates


async def test_several_nodes_answer_alike(swarm: Swarm, client: AsyncClient) -> None:
    answer = await client.infer(swarm.digits, swarm.inputs, nodes=3, aggregate="vote")
    assert answer.outputs.tolist() == swarm.expected.argmax(axis=1).tolist()
    assert len(set(answer.nodes)) == 3
    assert answer.disagreement == pytest.approx(0, abs=1e-6)
    assert answer.deviating == ()


async def test_both_sides_leave_evidence(swarm: Swarm, client: AsyncClient) -> None:
    """node-4 asks: the node that answers reports it, and it reports the node that answered."""
    async with AsyncClient(swarm.system.address, as_node="node-4") as asking:
        answer = await asking.infer(swarm.digits, swarm.inputs, "remote")
        async with asyncio.timeout(LIMIT_S):
            while not await told_of(client, "node-4", "it asked, and shook hands"):
                await asking.infer(swarm.digits, swarm.inputs, "remote")  # a handshake may have been late
    async with asyncio.timeout(LIMIT_S):
        while not await told_of(client, answer.nodes[0], " answers"):
            pass  # each look is a call that lets others run


async def told_of(client: AsyncClient, node: str, detail: str) -> bool:
    history = await client.belief_history(node)
    return any(belief.evidence is not None and detail in belief.evidence.detail for belief in history)


async def test_many_clients_at_once_and_none_is_lost(swarm: Swarm, client: AsyncClient) -> None:
    await client.infer(swarm.digits, swarm.inputs, "remote")

    async def ask(number: int) -> bool:
        async with AsyncClient(swarm.system.address) as own:
            row = swarm.inputs[number % 37 :][:1]
            answer = await own.infer(swarm.digits, row, "remote", hedge=False, timeout_s=LIMIT_S)
        return bool(np.allclose(answer.outputs, swarm.expected[number % 37 :][:1], rtol=1e-4, atol=1e-5))

    assert all(await asyncio.gather(*(ask(number) for number in range(64))))


async def test_text_is_the_same_after_a_stage_was_killed(swarm: Swarm, client: AsyncClient) -> None:
    """Each stage's node in turn loses its server by SIGKILL after the fifth token."""
    prompt = "The quick brown fox"
    undisturbed = [
        token.token async for token in client.generate(swarm.text, prompt, tokens=12, mode="local")
    ]
    assert len(undisturbed) == 12
    for victim in range(3):
        made, replaced = [], 0
        async for token in client.generate(swarm.text, prompt, tokens=12, mode="split", stages=3):
            made.append(token.token)
            replaced += token.replaced
            if len(made) == 5:
                inference_process(swarm.system.pids[token.nodes[victim]]).kill()
        assert made == undisturbed
        assert replaced >= 1


async def test_a_session_serves_the_next_answer_too_and_ends_with_its_client(
    swarm: Swarm, client: AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Figures of now may place the stages elsewhere once; where they stay, one session serves all answers."""
    monkeypatch.setattr("peerloom.inference.client.idle_pipelines.IDLE_S", LIMIT_S)
    replicas = await client._inference().replicas.ready(swarm.digits, 4)

    async def open_sessions() -> int:
        return sum([(await replica.look(LIMIT_S)).sessions for replica in replicas])

    async with asyncio.timeout(2 * LIMIT_S):
        while await open_sessions():
            pass  # each look is a call that lets others run
        async with AsyncClient(swarm.system.address) as asking:
            placed: Counter[tuple[str, ...]] = Counter()
            while max(placed.values(), default=0) < 3:
                answer = await asking.infer(swarm.digits, swarm.inputs, "split", stages=3)
                np.testing.assert_allclose(answer.outputs, swarm.expected, rtol=1e-4, atol=1e-5)
                placed[answer.nodes] += 1
            assert 3 <= await open_sessions() <= 3 * len(placed)
        while await open_sessions():
            pass


async def test_a_stage_that_dies_while_its_session_rests_is_replaced(
    swarm: Swarm, client: AsyncClient
) -> None:
    for victim in range(3):
        # Of four nodes one is spare: whoever was lost before has to be there again.
        async with asyncio.timeout(LIMIT_S):
            while len(await client._inference().replicas.ready(swarm.digits, 4)) < 4:
                pass
        before = await client.infer(swarm.digits, swarm.inputs, "split", stages=3)
        inference_process(swarm.system.pids[before.nodes[victim]]).kill()
        after = await client.infer(swarm.digits, swarm.inputs, "split", stages=3)
        np.testing.assert_array_equal(after.outputs, before.outputs)


@pytest.mark.parametrize("may_hedge", [True, False])
async def test_an_answer_survives_a_frozen_node(
    swarm: Swarm, client: AsyncClient, monkeypatch: pytest.MonkeyPatch, may_hedge: bool
) -> None:
    """SIGSTOP of the server that answered: a second node answers, also when no second request is left."""
    await client.infer(swarm.digits, swarm.inputs, nodes=2)
    first = await client.infer(swarm.digits, swarm.inputs, "remote")
    monkeypatch.setattr("peerloom.inference.client.remote.may_hedge", lambda *_: may_hedge)
    remote = client._inference().remote
    infer = remote.infer  # asked of the frozen node, though figures of now may favour another
    monkeypatch.setattr(
        remote, "infer", lambda *args, **named: infer(*args, **{**named, "first": first.nodes[0]})
    )
    frozen = inference_process(swarm.system.pids[first.nodes[0]])
    frozen.send_signal(signal.SIGSTOP)
    try:
        second = await client.infer(swarm.digits, swarm.inputs, "remote", timeout_s=LIMIT_S)
    finally:
        frozen.send_signal(signal.SIGCONT)
    np.testing.assert_allclose(second.outputs, swarm.expected, rtol=1e-4, atol=1e-5)
    assert second.nodes != first.nodes
    assert second.hedged


@pytest.mark.parametrize(
    ("inputs", "said"),
    [
        (np.zeros((2, 8, 8), dtype=np.float32), r"float32\[2, 8, 8\].* must be float32\[n, 1, 8, 8\]"),
        (np.zeros((2, 1, 8, 8), dtype=np.int64), r"must be float32\[n, 1, 8, 8\]"),
        (np.full((1, 1, 8, 8), np.nan, dtype=np.float32), "NaN or infinity"),
        (np.zeros((0, 1, 8, 8), dtype=np.float32), "samples"),
    ],
)
async def test_inputs_that_do_not_fit_are_refused_saying_what_does(
    swarm: Swarm, client: AsyncClient, inputs: np.ndarray, said: str
) -> None:
    with pytest.raises(InvalidArgumentError, match=said):
        await client.infer(swarm.digits, inputs, "remote")


async def test_wrong_wishes_are_refused_saying_the_limit(swarm: Swarm, client: AsyncClient) -> None:
    wishes: list[tuple[type[PeerloomError], str, dict[str, object]]] = [
        (InvalidArgumentError, "from 1 to 8", {"mode": "split", "stages": 9}),
        (InvalidArgumentError, "auto, remote", {"mode": "nearby"}),
        (InvalidArgumentError, "mean or vote", {"nodes": 2, "aggregate": "median"}),
    ]
    for error, said, wish in wishes:
        with pytest.raises(error, match=said):
            await client.infer(swarm.digits, swarm.inputs, **wish)  # type: ignore[arg-type]  # wrong on purpose
    with pytest.raises(NotFoundError):
        await client.infer("0" * 64, swarm.inputs, "remote")
    with pytest.raises(FailedPreconditionError, match="doesn't continue sequences"):
        _ = [token async for token in client.generate(swarm.digits, "x")]
    with pytest.raises(InvalidArgumentError, match="1 to 95 long"):
        _ = [token async for token in client.generate(swarm.text, "x" * 96)]


async def test_a_file_that_is_no_model_is_named(swarm: Swarm, client: AsyncClient, tmp_path: Path) -> None:
    path = tmp_path / "rubbish.safetensors"
    path.write_bytes(b"rubbish" * 100)
    digest = await store(swarm.system.addresses["node-1"], path)
    with pytest.raises(DataLossError, match="isn't a safetensors file"):
        await client.infer(digest, swarm.inputs, "remote")


def test_a_header_beyond_the_limit_is_refused_unread(tmp_path: Path) -> None:
    """9 MiB of header, in a file that is larger still."""
    path = tmp_path / "headed.safetensors"
    with path.open("wb") as file:
        file.write((9 * 2**20).to_bytes(8, "little"))
        file.truncate(10 * 2**20)
    with pytest.raises(InvalidArgumentError, match="header's size"):
        read_blueprint(path, "d" * 64, TrustedModules((), BY_USER))


async def test_a_model_too_large_says_how_much_is_missing(tmp_path: Path) -> None:
    """Two nodes lend 10,000 bytes each, the model has 24,360."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PEERLOOM_NODE_INFERENCE_MEMORY_BYTES", "10000")
        with Embedded(tmp_path / "state", (0, 0)) as small:
            path = make_model(tmp_path, "digits", {}, (1, 8, 8), "float32")
            digest = await store(small.addresses["node-1"], path)
            async with AsyncClient(small.address) as client:
                inputs = np.zeros((1, 1, 8, 8), dtype=np.float32)
                with pytest.raises(ResourceExhaustedError, match="14,360 more than are left of the 10,000"):
                    await client.infer(digest, inputs, "remote")
                with pytest.raises(
                    ResourceExhaustedError, match=r"4,360 bytes are missing|largest layer needs"
                ):
                    await client.infer(digest, inputs, "split", stages=2)
