"""Unequal machines: one worker of several is slowed to a third; how much of all the speed is used.

A sample costs waiting, not computing, so that 3 and 5 workers on few cores have the speeds they are given.
What could be had at best is the sum of the workers' own speeds: one fast one alone, as many times as there
are fast ones, and the slow one alone. Beside it plain DDP under torchrun, as slow as the slowest.
"""

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks.committed import committed_steps, seconds_between
from benchmarks.measure import ROOT, Goal, Measurement, measurement
from benchmarks.unequal_task import BATCH
from peerloom.client.client import Client
from peerloom.client.types import StepCommitted
from peerloom.embedded import Embedded

RIVAL = "torchrun, DDP, gloo"
SHARE_OF_SUM = 0.9
TORCHRUN_TRIES = 3


def run(quick: bool) -> list[Measurement]:
    """For 3 and 5 workers: each alone, all together, and all under torchrun, in turn."""
    rounds, sizes = (1, (3,)) if quick else (3, (3, 5))
    measurements = []
    for workers in sizes:
        with _system(workers) as (client, folder):
            together, sums, rivals = [], [], []
            for _ in range(rounds):
                slow = _rate(client, folder, 1, is_slow=True)
                fast = _rate(client, folder, 1, is_slow=False)
                sums.append(slow + (workers - 1) * fast)
                together.append(_rate(client, folder, workers, is_slow=True))
                rivals.append(_torchrun(workers))
        measurements += [
            measurement(
                f"{workers} workers, one at a third of the speed",
                "samples/s",
                together,
                goal=Goal(SHARE_OF_SUM, at_least=True, of_ratio=True),
                rival="the sum of the workers' own speeds",
                rival_samples=sums,
            ),
            measurement(
                f"the same {workers} workers beside plain DDP",
                "samples/s",
                together,
                rival=RIVAL,
                rival_samples=rivals,
            ),
        ]
    return measurements


def profile(quick: bool) -> str:
    """One job step by step: how its speed follows its shares."""
    with _system(3) as (client, folder):
        committed = _steps(client, folder, 3, 40 if quick else 100, is_slow=True)
    lines = [
        f"step {one.step:4d}: {1000 * one.step_s:7.1f} ms, computing {1000 * one.compute_s:7.1f} ms, "
        f"waiting {1000 * one.communication_s:7.1f} ms"
        for one in committed[::5]
    ]
    return "\n".join(["one job of 3 workers, as rank 0 reports it", "", *lines, ""])


@contextmanager
def _system(workers: int) -> Iterator[tuple[Client, Path]]:
    paths = [str(ROOT), os.environ.get("PYTHONPATH", "")]
    os.environ["PYTHONPATH"] = os.pathsep.join(path for path in paths if path)
    with (
        tempfile.TemporaryDirectory() as folder,
        Embedded(
            Path(folder) / "state", slots=(1,) * workers, log_level="error", data_roots=(Path(folder),)
        ) as system,
        Client(system.address) as client,
    ):
        yield client, Path(folder)


def _sizes(workers: int) -> tuple[int, int]:
    """Steps, and those of them before the measurement: shares need two looks of 2 s to settle.

    One worker alone has nothing to settle, and waits the same each time.
    """
    return (8, 2) if workers == 1 else (90, 50)


def _rate(client: Client, folder: Path, workers: int, *, is_slow: bool) -> float:
    steps, warm_up = _sizes(workers)
    committed = _steps(client, folder, workers, steps, is_slow=is_slow)
    return (steps - warm_up) * BATCH / seconds_between(committed[warm_up - 1], committed[-1])


def _steps(client: Client, folder: Path, workers: int, steps: int, *, is_slow: bool) -> list[StepCommitted]:
    claim = str(folder / f"claim-{time.monotonic_ns()}") if is_slow else ""  # one of the workers makes it
    job = client.train(
        "benchmarks.unequal_task:Waiting",
        requests=workers,
        min_workers=workers,
        max_workers=workers,
        arguments={"steps": str(steps), "claim": claim},
        backend="gloo",
    )
    return committed_steps(job)


def _torchrun(workers: int) -> float:
    steps, warm_up = 24, 4
    torchrun = str(Path(sys.executable).parent / "torchrun")
    command = [torchrun, "--standalone", f"--nproc-per-node={workers}", "-m", "benchmarks.unequal_script"]
    for _ in range(TORCHRUN_TRIES):
        done = subprocess.run(
            [*command, str(steps), str(warm_up)],
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
