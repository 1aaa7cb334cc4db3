"""What inference on the swarm costs: beside a bare gRPC echo, beside an ideal pipeline, and when stages die.

On loopback, but for the last part, the nodes without slots. The models are made by chance from a seed: what
they answer doesn't matter here, only that it is the same each time.
"""

import asyncio
import os
import tempfile
import time
from pathlib import Path

import numpy as np
import psutil

from benchmarks import inference_cases, inference_choice, inference_networks
from benchmarks.inference_files import given, made
from benchmarks.inference_sweep import Questions, sweep
from benchmarks.intervals import EXACT
from benchmarks.measure import Goal, Measurement, let_nodes_import, measurement
from benchmarks.processes import running
from peerloom import AsyncClient, Embedded
from peerloom.errors import PeerloomError
from peerloom.kit.dialing import Dialer
from peerloom.kit.tensors import message_of
from peerloom.v1.inference_pb2 import InferRequest

STAGES, MICRO_BATCHES, WAIT_S = 3, 8, 0.03
WAITING = inference_cases.WAITING
ROUNDS = 5
TEXT = {"width": "64", "depth": "4", "heads": "4", "context": "160"}


def run(quick: bool) -> list[Measurement]:
    """All figures; eight minutes, half of them for stages that die and servers that start again."""
    let_nodes_import()
    own = (WAITING, inference_cases.WIDE)
    os.environ["PEERLOOM_NODE_INFERENCE_MODULES"] = ",".join(task.partition(":")[0] for task in own)
    with tempfile.TemporaryDirectory() as folder:
        os.environ["XDG_CACHE_HOME"] = f"{folder}/cache"
        with Embedded(Path(folder) / "state", (0,) * 6, log_level="error") as system:
            found, asked = asyncio.run(_measure(system, Path(folder), quick))
        rounds = 1 if quick else ROUNDS
        asked += inference_cases.ask(Path(folder), rounds)
        digits = made(Path(folder), "digits", {}, (1, 8, 8), "float32")
        return found + inference_choice.figures(asked + inference_networks.ask(digits, rounds))


def profile(quick: bool) -> str:
    """Nothing to add to the figures."""
    return ""


async def _measure(system: Embedded, folder: Path, quick: bool) -> tuple[list[Measurement], list[Questions]]:
    """The figures, and the questions by which "auto" is judged."""
    digits = await given(system, folder, "digits", {}, (1, 8, 8), "float32")
    waiting_arguments = {"layers": str(STAGES), "seconds": str(WAIT_S), "width": "256"}
    waiting = await given(system, folder, WAITING, waiting_arguments, (256,), "float32")
    text = await given(system, folder, "text", TEXT, (160,), "int64")
    async with AsyncClient(system.address) as client:
        found = await _remote_cost(client, digits, 200 if quick else 2000)
        found += await _pipeline_cost(client, waiting, 3 if quick else 15)
        found += await _many_clients(system.address, client, digits, 64, 2 if quick else 20)
        asked = await sweep(client, digits, 1 if quick else ROUNDS)
        found += await _killed_stages(system, client, text, 2 if quick else 50)
    return found, asked


async def _remote_cost(client: AsyncClient, digest: str, calls: int) -> list[Measurement]:
    """Our calls and the echo's in turn, so that both meet the same machine."""
    inputs = np.random.default_rng(0).standard_normal((1, 1, 8, 8), dtype=np.float32)
    await client.infer(digest, inputs, "remote")
    ours, bare = [], []
    request = InferRequest(digest=digest, inputs=message_of(inputs))
    with running("benchmarks.inference_echo", core=1) as process:
        echo = Dialer().inference(process.address, "echo")
        for _ in range(calls):
            started_s = time.perf_counter()
            answer = await client.infer(digest, inputs, "remote", hedge=False)
            ours.append((time.perf_counter() - started_s - answer.model_s) * 1e3)
            started_s = time.perf_counter()
            await echo.call(echo.stub.Infer, request)
            bare.append((time.perf_counter() - started_s) * 1e3)
        await echo.close()
    name, rival = "a remote call over the model's own time", "bare grpc.aio echo of the same bytes"
    return [
        measurement(
            f"{name}, p50", "ms", ours, goal=Goal(2, at_least=False), rival=rival, rival_samples=bare
        ),
        measurement(f"{name}, p99", "ms", ours, statistic="p99", rival=rival, rival_samples=bare),
    ]


async def _pipeline_cost(client: AsyncClient, digest: str, rounds: int) -> list[Measurement]:
    """One micro-batch through 3 stages crosses 4 lines; 8 of them take 10 waits where nothing is lost."""
    inputs = np.ones((MICRO_BATCHES, 256), dtype=np.float32)

    async def ask_s(batch: np.ndarray) -> float:
        started_s = time.perf_counter()
        await client.infer(digest, batch, "split", stages=STAGES, micro_batches=MICRO_BATCHES)
        return time.perf_counter() - started_s

    await ask_s(inputs)
    first, hops, parts = list[float](), list[float](), list[float]()
    for _ in range(rounds):
        await client._inference().split.close()
        for found in (first, hops):
            found.append((await ask_s(inputs[:1]) - STAGES * WAIT_S) / (STAGES + 1) * 1e3)
        parts.append((MICRO_BATCHES + STAGES - 1) * WAIT_S / await ask_s(inputs))
    return [
        measurement("a hop of a split model", "ms", hops, goal=Goal(2, at_least=False)),
        measurement("a hop of a client's first answer: it opens the session", "ms", first),
        measurement(
            "8 micro-batches over 3 stages, of the ideal pipeline", "", parts, goal=Goal(0.8, at_least=True)
        ),
    ]


async def _many_clients(
    address: str, first: AsyncClient, digest: str, clients: int, calls: int
) -> list[Measurement]:
    inputs = np.random.default_rng(0).standard_normal((1, 1, 8, 8), dtype=np.float32)
    expected = (await first.infer(digest, inputs, "remote")).outputs
    latencies_s: list[float] = []
    lost = 0

    async def ask() -> None:
        nonlocal lost
        async with AsyncClient(address) as own:
            for _ in range(calls):
                started_s = time.perf_counter()
                try:
                    answer = await own.infer(digest, inputs, "remote", timeout_s=60.0)
                except PeerloomError:
                    lost += 1
                    continue
                latencies_s.append(time.perf_counter() - started_s)
                lost += not np.allclose(answer.outputs, expected, rtol=1e-4, atol=1e-5)

    started_s = time.perf_counter()
    await asyncio.gather(*(ask() for _ in range(clients)))
    rate = clients * calls / (time.perf_counter() - started_s)
    return [
        measurement(
            f"{clients} clients at once: answers lost or wrong",
            "",
            [lost],
            statistic=EXACT,
            goal=Goal(0, at_least=False),
        ),
        measurement(f"{clients} clients at once: answers", "1/s", [rate]),
        measurement(
            f"{clients} clients at once: p95 of an answer",
            "ms",
            [one * 1e3 for one in latencies_s],
            statistic="p95",
        ),
    ]


async def _killed_stages(system: Embedded, client: AsyncClient, digest: str, kills: int) -> list[Measurement]:
    """Each time another of the three stages is killed in mid-generation: the gap until the next token."""
    prompt = "What is lost on the way"
    expected = [token.token async for token in client.generate(digest, prompt, tokens=16, mode="local")]
    gaps_s, usual_s, same = list[float](), list[float](), 0
    for number in range(kills):
        await _all_serving(client, digest)
        made: list[int] = []
        async for token in client.generate(digest, prompt, tokens=16, mode="split", stages=STAGES):
            made.append(token.token)
            (gaps_s if token.replaced else usual_s).append(token.seconds)
            if len(made) == 8:
                _kill_server(system.pids[token.nodes[number % STAGES]])
        same += made == expected
    return [
        measurement("a killed stage: until the next token, p50", "s", gaps_s),
        measurement(
            f"a killed stage: until the next token, p95 of {kills} kills",
            "s",
            gaps_s,
            statistic="p95",
            goal=Goal(3, at_least=False),
        ),
        measurement("a token otherwise, p50", "s", usual_s),
        measurement(
            "a killed stage: outputs identical, of all kills",
            "",
            [same / kills],
            statistic=EXACT,
            goal=Goal(1, at_least=True),
        ),
    ]


async def _all_serving(client: AsyncClient, digest: str) -> None:
    """Waits until every node's server runs again: spares have to be there when a stage dies."""
    deadline_s = time.monotonic() + 120
    servers = client._inference().replicas
    while time.monotonic() < deadline_s:
        if len(await servers.ready(digest, 6)) == 6:
            return
        await asyncio.sleep(0.5)
    raise TimeoutError("the killed servers didn't come back")


def _kill_server(agent_pid: int) -> None:
    for child in psutil.Process(agent_pid).children():
        if "peerloom.inference.server" in child.cmdline():
            child.kill()
