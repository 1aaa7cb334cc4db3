"""What training through Peerloom costs: samples a second, and the time from submitting to the first step.

Both against the same model and data under plain `torchrun` with DDP, 2 workers with one thread each, gloo.
Peerloom's services and agents run all the time on the same cores, so what they use counts against it.
"""

import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil

from benchmarks.committed import seconds_between
from benchmarks.measure import ROOT, Goal, Measurement, measurement
from benchmarks.wide_model import BATCH
from peerloom.client.client import Client
from peerloom.client.jobs import JobHandle
from peerloom.client.types import StateChanged, StepCommitted
from peerloom.embedded import Embedded

WORKERS = 2
RIVAL = "torchrun, DDP, gloo"
IDLE_LIMIT_S = 120.0


@dataclass(frozen=True)
class Run:
    """Samples a second after the warm-up, and seconds from the start to the first optimiser step."""

    samples_per_s: float
    first_step_s: float
    step_s: float = 0.0


def run(quick: bool) -> list[Measurement]:
    """Whole jobs and whole torchrun runs in turn, each on an idle system; each gives both figures."""
    rounds, steps, warm_up = (1, 12, 4) if quick else (10, 120, 20)
    with _system() as (system, client):
        runs = [
            (
                _peerloom(system, client, steps, warm_up),
                _torchrun(system, steps, warm_up),
                _peerloom(system, client, steps, warm_up, equal_shares=True),
            )
            for _ in range(rounds)
        ]
    ours, rival, equal = zip(*runs, strict=True)
    rates = [one.samples_per_s for one in rival]
    goal = Goal(0.99, at_least=True, of_ratio=True)
    return [
        measurement(
            f"training throughput, {WORKERS} workers",
            "samples/s",
            [one.samples_per_s for one in ours],
            goal=goal,
            rival=RIVAL,
            rival_samples=rates,
        ),
        measurement(
            "the same with equal shares, as the rival has them",
            "samples/s",
            [one.samples_per_s for one in equal],
            goal=goal,
            rival=RIVAL,
            rival_samples=rates,
        ),
        measurement(
            "its step, as the workers report it",
            "ms",
            [1000 * one.step_s for one in ours],
            goal=Goal(50, at_least=True),
        ),
        measurement(
            "from submitting to the first step, on running agents",
            "s",
            [one.first_step_s for one in ours],
            goal=Goal(0.333, at_least=False, of_ratio=True),
            rival=f"{RIVAL}, from the shell",
            rival_samples=[one.first_step_s for one in rival],
        ),
    ]


def profile(quick: bool) -> str:
    """One job told by its events: what the time to the first step and what each step consist of."""
    steps = 12 if quick else 60
    with _system() as (system, client):
        _wait_until_idle(system)
        begin_s, lines, committed = time.perf_counter(), [], list[StepCommitted]()
        for event in _submit(client, steps).watch():
            since_s = time.perf_counter() - begin_s
            if isinstance(event, StepCommitted):
                committed.append(event)
            if not isinstance(event, StepCommitted) or len(committed) == 1:
                lines.append(f"{since_s:8.3f} s  {event}")
    parts = [
        f"{name}: median {1000 * statistics.median(getattr(one, name) for one in committed):.2f} ms"
        for name in ("step_s", "compute_s", "communication_s")
    ]
    return "\n".join(["one job, seconds since it was submitted", "", *lines, "", "each step", "", *parts, ""])


@contextmanager
def _system() -> Iterator[tuple[Embedded, Client]]:
    # The nodes import the task from here; two nodes with a slot each, as in the rival's two processes.
    paths = [str(ROOT), os.environ.get("PYTHONPATH", "")]
    os.environ["PYTHONPATH"] = os.pathsep.join(path for path in paths if path)
    with (
        tempfile.TemporaryDirectory() as state,
        Embedded(Path(state) / "state", slots=(1,) * WORKERS, log_level="error") as system,
        Client(system.address) as client,
    ):
        yield system, client


def _submit(client: Client, steps: int, equal_shares: bool = False) -> JobHandle:
    return client.train(
        "benchmarks.wide_task:Wide",
        requests=WORKERS,
        arguments={"steps": str(steps)},
        backend="gloo",
        equal_shares=equal_shares,
    )


def _peerloom(system: Embedded, client: Client, steps: int, warm_up: int, equal_shares: bool = False) -> Run:
    _wait_until_idle(system)
    begin_s, first_s = time.perf_counter(), 0.0
    committed: list[StepCommitted] = []
    for event in _submit(client, steps, equal_shares).watch():
        if isinstance(event, StepCommitted):
            first_s = first_s or time.perf_counter() - begin_s
            committed.append(event)
        if isinstance(event, StateChanged) and event.is_final and event.state != "succeeded":
            answers = [str(one) for one in client.job(event.job_id).status().answers]
            raise SystemExit(f"the job ended as {event}: {answers}")
    rate = (steps - warm_up) * BATCH / seconds_between(committed[warm_up - 1], committed[-1])
    return Run(rate, first_s, statistics.median(one.step_s for one in committed[warm_up:]))


def _torchrun(system: Embedded, steps: int, warm_up: int) -> Run:
    _wait_until_idle(system)  # our job's end must not fall on the rival
    torchrun = str(Path(sys.executable).parent / "torchrun")
    command = [torchrun, "--standalone", f"--nproc-per-node={WORKERS}", "-m", "benchmarks.torchrun_script"]
    begin_s = time.perf_counter()
    with subprocess.Popen(
        [*command, str(steps), str(warm_up)],
        cwd=ROOT,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as process:
        assert process.stdout is not None
        told = process.stdout.readline().strip()
        first_s = time.perf_counter() - begin_s
        rate = process.stdout.readline().strip()
    if told != "first" or process.returncode:
        raise SystemExit(f"torchrun failed with status {process.returncode}: run {' '.join(command)}")
    return Run(float(rate), first_s)


def _wait_until_idle(system: Embedded) -> None:
    """Running agents are ready to fork workers: the last job's end must not burden the next run."""
    deadline_s = time.monotonic() + IDLE_LIMIT_S
    before_s = _used_s(system)
    while time.monotonic() < deadline_s:
        time.sleep(1.0)
        now_s = _used_s(system)
        if now_s - before_s < 0.1:
            return
        before_s = now_s
    raise SystemExit(f"the system was not idle within {IDLE_LIMIT_S:.0f} s")


def _used_s(system: Embedded) -> float:
    total_s = 0.0
    for pid in system.pids.values():
        parent = psutil.Process(pid)
        for process in [parent, *parent.children(recursive=True)]:
            times = process.cpu_times()
            total_s += times.user + times.system
    return total_s
