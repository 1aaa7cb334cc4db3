"""What training on GPUs costs through Peerloom.

Run by `make bench-gpu`, on a machine with one. A transformer in bf16 over NCCL, 2 workers, beside the same
under plain `torchrun`. Where there are fewer cards than workers they share one, on both sides: the card takes
turns with them, and NCCL goes by way of sockets.
"""

import os
import statistics
import time

import torch

from benchmarks.committed import committed_steps, seconds_between, stamp_s
from benchmarks.measure import Goal, Measurement, alternate, measurement
from benchmarks.torchrun_rival import SEQUENCES, WORKERS, Workload, timed_torchrun
from benchmarks.training import training_system
from peerloom import Client, StepCommitted

RIVAL = "torchrun, DDP, NCCL"
SETTLE_S = 1.0  # after a run, before the other side's
QUICK = SEQUENCES(30, 10)


def run(quick: bool) -> list[Measurement]:
    """Whole jobs and whole torchrun runs in turn."""
    lend_cards(WORKERS)
    rounds, work = (1, QUICK) if quick else (3, SEQUENCES(80, 20))
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
    ]


def profile(quick: bool) -> str:
    """A short job's steps, as the workers report them."""
    with training_system() as (_, client):
        steps = _steps(client, QUICK)[QUICK.warm_up :]
    parts = ("step_s", "compute_s", "communication_s")
    medians = ((name, 1000 * statistics.median(getattr(step, name) for step in steps)) for name in parts)
    return "".join(f"{name}: median {median:.2f} ms\n" for name, median in medians)


def lend_cards(workers: int) -> None:
    """Nodes that start from now on lend this machine's GPUs, shared where there are fewer than workers.

    Raises SystemExit where there is none.
    """
    if not torch.cuda.is_available():
        raise SystemExit("error: this benchmark needs an NVIDIA GPU and a torch that knows it.")
    os.environ["PEERLOOM_NODE_ACCELERATOR"] = "cuda"
    os.environ["PEERLOOM_WORKERS_SHARE_CARDS"] = "1" if torch.cuda.device_count() < workers else ""


def _cards() -> str:
    count, name = torch.cuda.device_count(), torch.cuda.get_device_name()
    return f"{min(count, WORKERS)} {name}" if count >= WORKERS else f"sharing one {name}"


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
