"""Unequal machines: one worker of several is slowed to a third; how much of all the speed is used.

Of two kinds. Where samples cost waiting instead of computing, 3 and 5 workers on few cores have the speeds
they are given. Where they compute, each of 3 workers has a cgroup that gives it half of a core, the slow one
a sixth; that takes root. What could be had at best is the sum of the workers' own speeds: one fast one alone,
as many times as there are fast ones, and the slow one alone. Beside it plain DDP under torchrun with the same
limits, as slow as the slowest.
"""

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks.committed import committed_steps, seconds_between
from benchmarks.core_shares import core_shares, why_no_shares
from benchmarks.measure import ROOT, Goal, Measurement, let_nodes_import, measurement
from benchmarks.recovery.running_job import process_of
from benchmarks.unequal_work import Computing, Waiting, Work
from peerloom.client.client import Client
from peerloom.client.types import GenerationFormed, StepCommitted
from peerloom.embedded import Embedded

RIVAL = "torchrun, DDP, gloo"
SHARE_OF_SUM = 0.9
TORCHRUN_TRIES = 3
CORE_SHARES = (1 / 6, 0.5, 0.5)  # of the slow one first; of two cores the rest is for who starts them
# Steps, and those of them before the measurement. One worker alone has nothing to settle, nor has torchrun;
# shares need two looks of 2 s.
ALONE, TOGETHER, UNDER_TORCHRUN = (4, 1), (50, 30), (10, 2)


def run(quick: bool) -> list[Measurement]:
    """Waiting and computing, one after the other: each worker alone, all together, all under torchrun."""
    rounds = 1 if quick else 5
    found: list[Measurement] = []
    with _system(5) as (client, folder):
        found += _measure(client, Waiting(folder / "slow"), (3,) if quick else (3, 5), rounds)
    if why_not := why_no_shares():
        print(f"no unequal workers that compute: {why_not}", file=sys.stderr)
        return found
    with core_shares(CORE_SHARES) as groups, _system(len(groups)) as (client, _):
        return found + _measure(client, Computing(groups), (len(groups),), rounds)


def profile(quick: bool) -> str:
    """One job step by step: how its speed follows its shares."""
    with _system(3) as (client, folder):
        steps = 40 if quick else 100
        committed = _steps(client, Waiting(folder / "slow"), 3, steps, is_slow=True)
    lines = [
        f"step {one.step:4d}: {1000 * one.step_s:7.1f} ms, computing {1000 * one.compute_s:7.1f} ms, "
        f"waiting {1000 * one.communication_s:7.1f} ms"
        for one in committed[::5]
    ]
    return "\n".join(["one job of 3 workers that wait, as rank 0 reports it", "", *lines, ""])


def _measure(client: Client, work: Work, sizes: tuple[int, ...], rounds: int) -> list[Measurement]:
    """In each round everything once, so that all meet the same machine."""
    together: dict[int, list[float]] = {workers: [] for workers in sizes}
    sums: dict[int, list[float]] = {workers: [] for workers in sizes}
    rivals: dict[int, list[float]] = {workers: [] for workers in sizes}
    for _ in range(rounds):
        slow = _rate(client, work, 1, is_slow=True)
        fast = _rate(client, work, 1, is_slow=False)
        for workers in sizes:
            sums[workers].append(slow + (workers - 1) * fast)
            together[workers].append(_rate(client, work, workers, is_slow=True))
            rivals[workers].append(_torchrun(work, workers))
    return [
        figure
        for workers in sizes
        for figure in _figures(
            f"{workers} workers, {work.how}", together[workers], sums[workers], rivals[workers]
        )
    ]


def _figures(
    name: str, together: list[float], sums: list[float], rivals: list[float]
) -> tuple[Measurement, Measurement]:
    return (
        measurement(
            f"{name}, one at a third of the speed",
            "samples/s",
            together,
            goal=Goal(SHARE_OF_SUM, at_least=True, of_ratio=True),
            rival="the sum of the workers' own speeds",
            rival_samples=sums,
        ),
        measurement(
            f"the same {name}, beside plain DDP", "samples/s", together, rival=RIVAL, rival_samples=rivals
        ),
    )


@contextmanager
def _system(workers: int) -> Iterator[tuple[Client, Path]]:
    """A client, and a folder that workers may read."""
    let_nodes_import()
    os.environ["PEERLOOM_NODE_THREADS_PER_SLOT"] = "1"  # as torchrun's have
    with (
        tempfile.TemporaryDirectory() as state,
        tempfile.TemporaryDirectory() as data,
        Embedded(Path(state), slots=(1,) * workers, log_level="error", data_roots=(Path(data),)) as system,
        Client(system.address) as client,
    ):
        yield client, Path(data)


def _rate(client: Client, work: Work, workers: int, *, is_slow: bool) -> float:
    steps, warm_up = ALONE if workers == 1 else TOGETHER
    committed = _steps(client, work, workers, steps, is_slow=is_slow)
    return (steps - warm_up) * work.batch / seconds_between(committed[warm_up - 1], committed[-1])


def _steps(client: Client, work: Work, workers: int, steps: int, *, is_slow: bool) -> list[StepCommitted]:
    def limit(formed: GenerationFormed) -> None:
        work.limit([process_of(worker.id).pid for worker in formed.workers], is_slow=is_slow)

    work.limit([], is_slow=False)
    job = client.train(
        work.task,
        requests=workers,
        min_workers=workers,
        max_workers=workers,
        arguments={"steps": str(steps), **work.arguments},
        backend="gloo",
    )
    return committed_steps(job, limit)


def _torchrun(work: Work, workers: int) -> float:
    torchrun = str(Path(sys.executable).parent / "torchrun")
    command = [torchrun, "--standalone", f"--nproc-per-node={workers}", "-m", "benchmarks.unequal_script"]
    command += [*(str(number) for number in UNDER_TORCHRUN), *(str(group) for group in work.groups)]
    for _ in range(TORCHRUN_TRIES):
        done = subprocess.run(
            command,
            cwd=ROOT,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode == 0:
            return float(done.stdout.strip())
        print(f"torchrun ended with status {done.returncode}, and said:\n{done.stderr}", file=sys.stderr)
    raise SystemExit(f"torchrun failed {TORCHRUN_TRIES} times: run {' '.join(command)}")
