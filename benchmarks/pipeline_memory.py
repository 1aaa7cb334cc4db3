"""A transformer of 100 million parameters on slots of 512 MiB: by data there is no room, divided it trains.

Run by `make bench-pipeline-memory`. The limit is the owners' `--memory-limit-bytes`. The kernel gives a
worker no more than twice as much beyond what it began with, and one that uses more than the limit for seconds
is asked to leave. What a worker uses is what would be free without it: interpreter and libraries are shared
with others that were forked from the same process.
"""

import os
import tempfile
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import psutil

from benchmarks.measure import Goal, Measurement, let_nodes_import, measurement
from peerloom import Client, Embedded, Job, StepCommitted, WorkerLost

SLOT_BYTES, STAGES, SHARDS = 512 * 2**20, 4, 8
TASK = "benchmarks.large_task:LargeTransformer"
PLANS = (f"pipeline={STAGES},micro_batches=4,shadow=off", f"sharded={SHARDS},shadow=off")
LOOK_S, JOB_LIMIT_S = 0.05, 300.0
_SLOTS = f"Slots of {SLOT_BYTES / 2**20:.0f} MiB, a transformer of 100 million parameters"


def run(quick: bool) -> list[Measurement]:
    """A job with plan data, and some of each that divides the model, in turn."""
    found: dict[str, list[tuple[float, int]]] = {plan: [] for plan in PLANS}
    with _system() as (client, system):
        lost = _lost_for_memory(client)
        for seed in range(1, 2 if quick else 4):
            for plan, seen in found.items():
                seen.append(_train(client, system, plan, seed))
    data = measurement(f"{_SLOTS}: workers that plan data lost for want of memory", "", [lost])
    return [data, *(one for plan, seen in found.items() for one in _measurements(plan, seen))]


def _measurements(plan: str, seen: Sequence[tuple[float, int]]) -> list[Measurement]:
    return [
        measurement(
            f"{_SLOTS}: the most that a worker of {plan} used beside what all share",
            "MiB",
            [peak_mib for peak_mib, _ in seen],
            goal=Goal(SLOT_BYTES / 2**20, at_least=False),
        ),
        measurement(
            f"{_SLOTS}: workers that {plan} lost",
            "",
            [count for _, count in seen],
            statistic="mean",
            goal=Goal(0, at_least=False),
        ),
    ]


def profile(quick: bool) -> str:
    """None: the figures tell all."""
    return ""


@contextmanager
def _system() -> Iterator[tuple[Client, Embedded]]:
    let_nodes_import()
    os.environ["PEERLOOM_NODE_MEMORY_LIMIT_BYTES"] = str(SLOT_BYTES)
    with (
        tempfile.TemporaryDirectory() as state,
        Embedded(Path(state) / "state", slots=(1,) * SHARDS, log_level="error") as system,
        Client(system.address) as client,
    ):
        yield client, system


def _lost_for_memory(client: Client) -> int:
    """How many workers of plan data had too little memory, until the job ended for that."""
    job = client.train(TASK, requests=STAGES, plan="data")
    lost = [event for event in job.watch() if isinstance(event, WorkerLost) and "memory" in event.reason]
    result = job.result(JOB_LIMIT_S)
    print(f"   data: {result.state}: {result.reason}", flush=True)
    return len({event.worker.id for event in lost})


def _train(client: Client, system: Embedded, plan: str, seed: int) -> tuple[float, int]:
    """The most MiB that one of the plan's workers used, and how many were lost. Ends if it fails."""
    watched = _Watched(system)
    job = client.train(TASK, requests=SHARDS, plan=plan, seed=seed)
    lost = steps = 0
    for event in job.watch():
        lost += isinstance(event, WorkerLost)
        steps += isinstance(event, StepCommitted)
    result = job.result(JOB_LIMIT_S)
    peak_mib = watched.end() / 2**20
    if not result.succeeded:
        raise SystemExit(f"error: {plan} ended as {result.state}: {result.reason}")
    print(f"   {plan}: {steps} steps, {_stages(job.status())}, {peak_mib:.0f} MiB", flush=True)
    return peak_mib, lost


def _stages(job: Job) -> str:
    found = sorted((worker.rank, worker.stage.parameters) for worker in job.workers if worker.stage)
    return " + ".join(f"{parameters / 1e6:.1f}" for _, parameters in found) + " million parameters"


class _Watched:
    """Looks at what the agents' workers use, now and then, until its `end`."""

    def __init__(self, system: Embedded) -> None:
        self._agents = [pid for name, pid in system.pids.items() if name.startswith("node-")]
        self._is_over = threading.Event()
        self._peak_bytes = 0
        self._thread = threading.Thread(target=self._look, daemon=True)
        self._thread.start()

    def end(self) -> int:
        """The most of one worker."""
        self._is_over.set()
        self._thread.join()
        return self._peak_bytes

    def _look(self) -> None:
        while not self._is_over.wait(LOOK_S):
            for agent in self._agents:
                for origin in psutil.Process(agent).children():
                    for worker in origin.children():
                        self._note(worker)

    def _note(self, worker: psutil.Process) -> None:
        try:
            self._peak_bytes = max(self._peak_bytes, worker.memory_full_info().uss)
        except psutil.Error:
            return  # it has just ended
