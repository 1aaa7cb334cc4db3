"""What training through Peerloom costs: samples a second, and the time from submitting to the first step.

Both against the same model and data under plain `torchrun` with DDP, 2 workers with one thread each, gloo.
Peerloom's services and agents run all the time on the same cores, so what they use counts against it. What
it would be otherwise tells the rival beside a process that takes as much of the cores as they did.
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

from benchmarks.committed import seconds_between
from benchmarks.measure import ROOT, Goal, Measurement, let_nodes_import, measurement
from benchmarks.processor_time import ProcessorTime, seconds_used
from benchmarks.torchrun_rival import (
    RIVAL,
    SHORT,
    WIDE,
    WORKERS,
    Workload,
    timed_torchrun,
    torchrun_process,
)
from peerloom.client.client import Client
from peerloom.client.jobs import JobHandle
from peerloom.client.types import StateChanged, StepCommitted
from peerloom.embedded import Embedded

IDLE_LIMIT_S = 120.0


@dataclass(frozen=True)
class Run:
    """Samples a second after the warm-up, and seconds from the start to the first optimiser step.

    `services_share`: of one core, what all processes but the workers took.
    """

    samples_per_s: float
    first_step_s: float
    step_s: float = 0.0
    services_share: float = 0.0


def run(quick: bool) -> list[Measurement]:
    """Whole jobs and whole torchrun runs in turn, each on an idle system; each gives both figures."""
    rounds, wide, short = (1, WIDE(12, 4), SHORT(12, 4)) if quick else (10, WIDE(120, 20), SHORT(2000, 200))
    with training_system() as (system, client):
        runs = [_round(system, client, wide) for _ in range(rounds)]
        pairs = [_pair(system, client, short) for _ in range(rounds)]
    return [*_long_steps(runs), *_short_steps(pairs)]


def _long_steps(runs: list[tuple[Run, ...]]) -> list[Measurement]:
    ours, rival, equal, loaded = zip(*runs, strict=True)
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
            "training throughput, beside torchrun with as much other work on its cores",
            "samples/s",
            [one.samples_per_s for one in ours],
            goal=goal,
            rival=f"{RIVAL}, beside a process that takes what the services took",
            rival_samples=[one.samples_per_s for one in loaded],
        ),
        measurement(
            "what services, agents and client take of the cores while it trains",
            "of one core",
            [one.services_share for one in ours],
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


def _short_steps(pairs: list[tuple[Run, Run]]) -> list[Measurement]:
    return [
        measurement(
            "training throughput with short steps, of a model of 270 thousand parameters",
            "samples/s",
            [one.samples_per_s for one, _ in pairs],
            rival=RIVAL,
            rival_samples=[one.samples_per_s for _, one in pairs],
        ),
        measurement(
            "the same: what services, agents and client take of the cores",
            "of one core",
            [one.services_share for one, _ in pairs],
        ),
    ]


def _round(system: Embedded, client: Client, work: Workload) -> tuple[Run, ...]:
    ours = _peerloom(system, client, work)
    rival = _torchrun(system, work)
    equal = _peerloom(system, client, work, equal_shares=True)
    with _taking(ours.services_share):
        loaded = _torchrun(system, work)
    return ours, rival, equal, loaded


def _pair(system: Embedded, client: Client, work: Workload) -> tuple[Run, Run]:
    return _peerloom(system, client, work), _torchrun(system, work)


@contextmanager
def _taking(share: float) -> Iterator[None]:
    load = subprocess.Popen([sys.executable, "-m", "benchmarks.core_load", str(share)], cwd=ROOT)
    try:
        yield
    finally:
        load.kill()
        load.wait()


def profile(quick: bool) -> str:
    """One job told by its events, and what each process of both sides takes of the cores in a step."""
    work = WIDE(24, 4) if quick else WIDE(220, 20)
    steps, warm_up = work.steps, work.warm_up
    with training_system() as (system, client):
        _wait_until_idle(system)
        begin_s, lines, committed = time.perf_counter(), [], list[StepCommitted]()
        for event in _submit(client, work).watch():
            since_s = time.perf_counter() - begin_s
            if isinstance(event, StepCommitted):
                committed.append(event)
                if len(committed) == warm_up:
                    time_taken = ProcessorTime({**system.pids, "client": os.getpid()})
                elif len(committed) == steps - warm_up:
                    each_s = seconds_between(committed[warm_up - 1], committed[-1]) / (steps - 2 * warm_up)
                    ours = time_taken.ms_a_step(each_s)
            if not isinstance(event, StepCommitted) or len(committed) == 1:
                lines.append(f"{since_s:8.3f} s  {event}")
        _wait_until_idle(system)
    parts = [
        f"{name}: median {1000 * statistics.median(getattr(one, name) for one in committed):.2f} ms"
        for name in ("step_s", "compute_s", "communication_s")
    ]
    return "\n".join(
        [
            "one job, seconds since it was submitted",
            "",
            *lines,
            "",
            "each step",
            "",
            *parts,
            "",
            f"processor time of a step, ms: Peerloom's took {1000 * each_s:.1f} ms",
            "",
            *_told(ours),
            "",
            *_rivals_processor_time(work),
            "",
        ]
    )


def _rivals_processor_time(work: Workload) -> list[str]:
    with torchrun_process(work) as process:
        assert process.stdout is not None
        process.stdout.readline()
        time.sleep(1.0)  # it says that the first step is made, not the warm-up
        taken, begin_s = ProcessorTime({"torchrun": process.pid}), time.perf_counter()
        while time.perf_counter() - begin_s < work.steps / 40 and process.poll() is None:
            time.sleep(0.05)
        used = taken.ms_a_step(1.0)
        step_s = work.batch / float(process.stdout.readline())
        process.communicate()
    scaled = {name: ms * step_s for name, ms in used.items()}
    return [f"processor time of a step, ms: torchrun's took {1000 * step_s:.1f} ms", "", *_told(scaled)]


def _told(used: dict[str, float]) -> list[str]:
    return [f"{name:10s} {ms:8.2f}" for name, ms in used.items()]


@contextmanager
def training_system() -> Iterator[tuple[Embedded, Client]]:
    """Two nodes with a slot each, as in the rival's two processes, and a client."""
    let_nodes_import()
    with (
        tempfile.TemporaryDirectory() as state,
        Embedded(Path(state) / "state", slots=(1,) * WORKERS, log_level="error") as system,
        Client(system.address) as client,
    ):
        yield system, client


def _submit(client: Client, work: Workload, equal_shares: bool = False) -> JobHandle:
    return client.train(
        work.task,
        requests=WORKERS,
        arguments={"steps": str(work.steps)},
        backend="gloo",
        equal_shares=equal_shares,
    )


def _peerloom(system: Embedded, client: Client, work: Workload, equal_shares: bool = False) -> Run:
    _wait_until_idle(system)
    begin_s, first_s, share = time.perf_counter(), 0.0, 0.0
    committed: list[StepCommitted] = []
    for event in _submit(client, work, equal_shares).watch():
        if isinstance(event, StepCommitted):
            first_s = first_s or time.perf_counter() - begin_s
            committed.append(event)
            if len(committed) == work.warm_up:
                taken = ProcessorTime({**system.pids, "client": os.getpid()})
            elif len(committed) == work.steps:
                share = taken.share_beside_workers()
        if isinstance(event, StateChanged) and event.is_final and event.state != "succeeded":
            answers = [str(one) for one in client.job(event.job_id).status().answers]
            raise SystemExit(f"the job ended as {event}: {answers}")
    taken_s = seconds_between(committed[work.warm_up - 1], committed[-1])
    rate = (work.steps - work.warm_up) * work.batch / taken_s
    return Run(rate, first_s, statistics.median(one.step_s for one in committed[work.warm_up :]), share)


def _torchrun(system: Embedded, work: Workload) -> Run:
    _wait_until_idle(system)  # our job's end must not fall on the rival
    return Run(*timed_torchrun(work))


def _wait_until_idle(system: Embedded) -> None:
    """Running agents are ready to fork workers: the last job's end must not burden the next run."""
    deadline_s = time.monotonic() + IDLE_LIMIT_S
    before_s = sum(seconds_used(system.pids).values())
    while time.monotonic() < deadline_s:
        time.sleep(1.0)
        now_s = sum(seconds_used(system.pids).values())
        if now_s - before_s < 0.1:
            return
        before_s = now_s
    raise SystemExit(f"the system was not idle within {IDLE_LIMIT_S:.0f} s")
