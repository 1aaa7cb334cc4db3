"""What the training benchmark trains, as both sides know it, and the rival's process."""

import os
import subprocess
import sys
import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from benchmarks import gpu_model, wide_model
from benchmarks.measure import ROOT
from benchmarks.recovery import small_model

WORKERS = 2
RIVAL = "torchrun, DDP, gloo"


@dataclass(frozen=True)
class Workload:
    """A model by the rival's name and by our task, so many steps of one epoch with batches of a size."""

    name: str
    task: str
    batch: int
    steps: int
    warm_up: int


WIDE = partial(Workload, "wide", "benchmarks.wide_task:Wide", wide_model.BATCH)
SEQUENCES = partial(Workload, "sequences", "benchmarks.gpu_task:Sequences", gpu_model.BATCH)
SHORT = partial(Workload, "small", "benchmarks.recovery.small_task:Short", small_model.BATCH)


def torchrun_command(work: Workload) -> list[str]:
    """What a user would type, of this environment."""
    torchrun = str(Path(sys.executable).parent / "torchrun")
    script = ["-m", "benchmarks.torchrun_script", str(work.steps), str(work.warm_up), work.name]
    return [torchrun, "--standalone", f"--nproc-per-node={WORKERS}", *script]


def torchrun_process(work: Workload) -> "subprocess.Popen[str]":
    """It has begun; says on its output what `torchrun_script` prints."""
    return subprocess.Popen(
        torchrun_command(work),
        cwd=ROOT,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def timed_torchrun(work: Workload) -> tuple[float, float]:
    """A whole run: its samples a second after the warm-up, and seconds from here to its first step."""
    begin_s = time.perf_counter()
    with torchrun_process(work) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        told = process.stdout.readline().strip()
        first_s = time.perf_counter() - begin_s
        rate = process.stdout.readline().strip()
        complaint = process.stderr.read()
    if told != "first" or process.returncode:
        command = " ".join(torchrun_command(work))
        raise SystemExit(f"torchrun failed with status {process.returncode}: run {command}\n{complaint}")
    return float(rate), first_s
