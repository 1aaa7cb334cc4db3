"""A thousand clients at once through "auto", each with connections of its own: none lost, none left waiting.

Run by `make bench-callers`. On loopback, on nodes without slots; clients live in some processes, and share
the machine's cores with the nodes. First a model that takes next to nothing, with time enough for everybody:
each question has to be answered. Then two that wait so long a sample that the nodes can't answer all in the
time that a question has: who isn't answered has to be told so, and when to come again. With the faster one
clients ask more often than two cores can carry clients, so that many are late on their own side of the wire;
with the slower one, of the same load for the nodes, clients have time.
"""

import asyncio
import json
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from benchmarks import inference_cases
from benchmarks.callers_crowd import Calling, Said
from benchmarks.inference_files import given
from benchmarks.intervals import EXACT
from benchmarks.measure import ROOT, Goal, Measurement, let_nodes_import, measurement
from peerloom import Client, Embedded

CLIENTS, PROCESSES, NODES = 1000, 8, 4
ROOMY_S = 120.0
# Seconds of a sample, and those in which a question's answer is due.
NARROW = ((0.02, 3.0), (0.1, 15.0))
LIMIT_S = 400.0


@dataclass(frozen=True)
class Crowd:
    """What all processes' clients said, and how long all of it took, in seconds."""

    said: Said
    took_s: float


def run(quick: bool) -> list[Measurement]:
    """Both, with so many rounds each."""
    let_nodes_import()
    os.environ["PEERLOOM_NODE_INFERENCE_MODULES"] = inference_cases.WAITING.partition(":")[0]
    clients, rounds = (80, 1) if quick else (CLIENTS, 5)
    with (
        tempfile.TemporaryDirectory() as folder,
        Embedded(Path(folder) / "state", (0,) * NODES, log_level="error") as system,
    ):
        digits = asyncio.run(given(system, Path(folder), "digits", {}, (1, 8, 8), "float32"))
        found = _of_roomy(_crowds(system, digits, (1, 8, 8), ROOMY_S, clients, rounds), clients)
        for sample_s, due_s in NARROW:
            slow = asyncio.run(_waiting(system, Path(folder), sample_s))
            crowds = _crowds(system, slow, (256,), due_s, clients, rounds)
            found += _of_narrow(crowds, clients, sample_s, due_s)
    return found


def profile(quick: bool) -> str:
    """Nothing to add to the figures."""
    return ""


async def _waiting(system: Embedded, folder: Path, sample_s: float) -> str:
    arguments = {"layers": "1", "seconds": str(sample_s), "width": "256", "each": "sample"}
    return await given(system, folder, inference_cases.WAITING, arguments, (256,), "float32")


def _crowds(
    system: Embedded, digest: str, shape: Sequence[int], timeout_s: float, clients: int, rounds: int
) -> list[Crowd]:
    inputs = np.ones((1, *shape), dtype=np.float32)
    with Client(system.address) as client:
        expected = [float(one) for one in client.infer(digest, inputs, "remote").outputs[0]]
    calling = Calling(digest, clients // PROCESSES, 5, timeout_s, shape, expected)
    crowds = []
    for _ in range(rounds):
        crowds.append(_crowd(system, calling))
        told = crowds[-1].said
        print(
            f"  {len(told.seconds)} answers {dict(told.ways)}, {told.wrong} wrong, {told.shed} shed, "
            f"{dict(told.errors)} in {crowds[-1].took_s:.1f} s",
            flush=True,
        )
    return crowds


def _crowd(system: Embedded, calling: Calling) -> Crowd:
    """All processes are ready before any of them begins."""
    command = [sys.executable, "-m", "benchmarks.callers_crowd", json.dumps(asdict(calling))]
    environment = {**os.environ, "PEERLOOM_ADDRESS": system.address, "OMP_NUM_THREADS": "1"}
    processes = [
        subprocess.Popen(
            command, cwd=ROOT, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        for _ in range(PROCESSES)
    ]
    for process in processes:
        assert process.stdout is not None
        process.stdout.readline()
    began_s, total = time.perf_counter(), Said()
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    for process in processes:
        printed, _ = process.communicate(timeout=LIMIT_S)
        if process.returncode:
            raise SystemExit(f"a crowd of clients ended with status {process.returncode}")
        _add(total, json.loads(printed))
    return Crowd(total, time.perf_counter() - began_s)


def _add(total: Said, one: dict[str, object]) -> None:
    said = Said(**one)  # type: ignore[arg-type]  # as the process printed it
    total.seconds += said.seconds
    total.wrong += said.wrong
    total.shed += said.shed
    total.ways += Counter(said.ways)
    total.errors += Counter(said.errors)


def _of_roomy(crowds: Sequence[Crowd], clients: int) -> list[Measurement]:
    what = f"{clients:,} clients at once through auto, 5 questions each"
    lost = [one.said.wrong + one.said.shed + sum(one.said.errors.values()) for one in crowds]
    seconds = [each for one in crowds for each in one.said.seconds]
    return [
        _none(f"{what}: answers lost, refused or wrong", lost),
        measurement(f"{what}: answers", "1/s", [len(one.said.seconds) / one.took_s for one in crowds]),
        measurement(f"{what}: p50 of an answer", "s", seconds, statistic="p50"),
        measurement(f"{what}: p99 of an answer", "s", seconds, statistic="p99"),
        *_kinds(what, crowds),
    ]


def _of_narrow(crowds: Sequence[Crowd], clients: int, sample_s: float, due_s: float) -> list[Measurement]:
    what = (
        f"{clients:,} clients at once through auto, each answer {sample_s * 1000:.0f} ms of a node's time "
        f"and due in {due_s:.0f} s"
    )
    lost = [one.said.wrong + sum(one.said.errors.values()) for one in crowds]
    asked = [len(one.said.seconds) + one.said.shed + sum(one.said.errors.values()) for one in crowds]
    shed = [100 * one.said.shed / count for one, count in zip(crowds, asked, strict=True)]
    return [
        _none(f"{what}: neither answered nor told when to come again", lost),
        measurement(f"{what}: told when to come again", "% of the questions", shed),
        measurement(f"{what}: answers", "1/s", [len(one.said.seconds) / one.took_s for one in crowds]),
        *_kinds(what, crowds),
    ]


def _none(name: str, counts: Sequence[int]) -> Measurement:
    return measurement(name, "", [sum(counts)], statistic=EXACT, goal=Goal(0, at_least=False))


def _kinds(what: str, crowds: Sequence[Crowd]) -> list[Measurement]:
    """How many ended with which kind of error: its words name servers of this run, and are printed only."""
    counts = Counter[str]()
    for error, count in (item for one in crowds for item in one.said.errors.items()):
        counts[error.partition(":")[0]] += count
    return [
        measurement(f"{what}: ended with {kind}", "", [count], statistic=EXACT)
        for kind, count in sorted(counts.items())
    ]
