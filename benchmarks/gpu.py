"""What training on GPUs costs through Peerloom, and how soon it goes on after a worker is killed.

Run by `make bench-gpu`, on a machine with one. A transformer in bf16 over NCCL, 2 workers, beside the same
under plain `torchrun`; then kills among 5 workers of a small model, beside torchrun elastic, which starts all
of them anew. Where there are fewer cards than workers they share one, on both sides: the card takes turns
with them, and NCCL goes by way of sockets.
"""

import os
import signal
import statistics
import time
from functools import partial

import torch

from benchmarks.committed import committed_steps, seconds_between, stamp_s
from benchmarks.measure import Goal, Measurement, alternate, measurement
from benchmarks.recovery.rival_faults import recoveries
from benchmarks.recovery.rival_jobs import torchrun
from benchmarks.recovery.running_job import running_job
from benchmarks.recovery.series import recovery_times, signal_worker, told
from benchmarks.torchrun_rival import SEQUENCES, WORKERS, Workload, timed_torchrun
from benchmarks.training import training_system
from peerloom import Client, StepCommitted

RIVAL = "torchrun, DDP, NCCL"
SETTLE_S = 1.0  # after a run, before the other side's


def run(quick: bool) -> list[Measurement]:
    """Whole jobs and whole torchrun runs in turn, then the kills of both sides."""
    if not torch.cuda.is_available():
        raise SystemExit("error: this benchmark needs an NVIDIA GPU and a torch that knows it.")
    os.environ["PEERLOOM_NODE_ACCELERATOR"] = "cuda"
    os.environ["PEERLOOM_WORKERS_SHARE_CARDS"] = "1" if torch.cuda.device_count() < WORKERS else ""
    rounds, work = (1, SEQUENCES(30, 10)) if quick else (6, SEQUENCES(300, 60))
    with training_system() as (_, client):
        ours, rival = alternate(rounds, lambda: _peerloom(client, work), lambda: _torchrun(work))
    return [
        measurement(
            f"training throughput over NCCL, {WORKERS} workers, {_cards()}",
            "samples/s",
            [rate for rate, _ in ours],
            goal=Goal(0.99, at_least=True, of_ratio=True),
            rival=RIVAL,
            rival_samples=[rate for rate, _ in rival],
        ),
        measurement(
            "from submitting to the first step, on running agents, over NCCL",
            "s",
            [first_s for _, first_s in ours],
            goal=Goal(0.333, at_least=False, of_ratio=True),
            rival=f"{RIVAL}, from the shell",
            rival_samples=[first_s for _, first_s in rival],
        ),
        *_kills(2 if quick else 20, 1 if quick else 3),
    ]


def profile(quick: bool) -> str:
    """One job's steps, as the workers report them."""
    work = SEQUENCES(30, 10) if quick else SEQUENCES(300, 60)
    with training_system() as (_, client):
        steps = _steps(client, work)[work.warm_up :]
    parts = ("step_s", "compute_s", "communication_s")
    medians = ((name, 1000 * statistics.median(getattr(step, name) for step in steps)) for name in parts)
    return "".join(f"{name}: median {median:.2f} ms\n" for name, median in medians)


def _cards() -> str:
    count, name = torch.cuda.device_count(), torch.cuda.get_device_name()
    return f"{min(count, WORKERS)} {name}" if count >= WORKERS else f"sharing one {name}"


def _kills(count: int, rivals_count: int) -> list[Measurement]:
    os.environ["PEERLOOM_WORKERS_SHARE_CARDS"] = "1"
    with running_job(backend="nccl") as running:
        times = recovery_times(running, count, signal_worker(signal.SIGKILL))
    found = recoveries(partial(torchrun, False, backend="nccl"), signal.SIGKILL, rivals_count)
    what = "from SIGKILL of a worker to the survivors' next committed step, over NCCL"
    rival = f"torchrun elastic --max-restarts=3, NCCL{found.end}"
    return [
        *told(what, times, None, 1.0),
        measurement(f"{what}, beside torchrun", "s", times, rival=rival, rival_samples=found.times),
    ]


def _peerloom(client: Client, work: Workload) -> tuple[float, float]:
    time.sleep(SETTLE_S)
    begin_s = time.time()
    steps = _steps(client, work)
    taken_s = seconds_between(steps[work.warm_up - 1], steps[-1])
    return (work.steps - work.warm_up) * work.batch / taken_s, stamp_s(steps[0]) - begin_s


def _steps(client: Client, work: Workload) -> list[StepCommitted]:
    arguments = {"steps": str(work.steps)}
    job = client.train(work.task, requests=WORKERS, min_workers=WORKERS, arguments=arguments, backend="nccl")
    return committed_steps(job)


def _torchrun(work: Workload) -> tuple[float, float]:
    time.sleep(SETTLE_S)
    return timed_torchrun(work)
