"""Jobs of emulated compute, one after the other, in one machine or behind ns-3, and what came of each.

A testbed is entered, not exposed, so its jobs are asked by a process inside: this module as a program, which
reads a job a line from stdin and answers with a line each.
"""

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from selectors import EVENT_READ, DefaultSelector
from statistics import fmean
from typing import Any

from peerloom.client.client import Client
from peerloom.client.types import StateChanged, StepCommitted
from peerloom.errors import DeadlineError, InternalError, PeerloomError
from peerloom.experiments.emulated_networks import EmulatedNetwork
from peerloom.experiments.live import live_system
from peerloom.testbed import Testbed
from peerloom.testbed.traffic import traffic_between

WARM_UP = 2  # steps: connections open, buffers are made
_LOOK_S = 0.1  # as often as the simulator itself compares its clock with the wall's
_JOB_LIMIT_S = 300.0
# The emulator counts as keeping up while it is late, at its worst, by at most this part of a step.
LAG_PART = 0.25


@dataclass(frozen=True)
class EmulatedJob:
    """`steps` measured steps of `batch` samples after the warm-up, on the layers of the task `like`.

    `workers` None: as many as `requests` nodes give slots.
    """

    like: str
    requests: int
    workers: int | None
    batch: int
    sample_s: float
    step_s: float
    steps: int = 10
    min_slots: int = 1
    policy: str = ""
    seed: int = 0


Row = dict[str, Any]
Ask = Callable[[EmulatedJob], Row]


@contextmanager
def one_machine(slots: int) -> Iterator[Ask]:
    """Asks a system of one node with so many slots, on this machine."""
    with live_system((slots,), keep_warm=True) as client:
        yield lambda job: train(client, job)


@contextmanager
def behind(network: EmulatedNetwork, slots: Sequence[int], nodes: int) -> Iterator[Ask]:
    """Asks a system whose nodes have these slots, each behind its tap of an ns-3 network of `nodes` nodes.

    A row says what crossed the network and how late the emulator was (`lag_s`). Raises what Testbed does.
    """
    with (
        tempfile.TemporaryDirectory(prefix="peerloom-experiment-") as folder,
        Testbed(network.plan(slots, nodes), Path(folder), log_level="error") as testbed,
        inside(testbed) as ask,
    ):
        yield ask


@contextmanager
def inside(testbed: Testbed) -> Iterator[Ask]:
    """Asks the system of a testbed that is up; see `behind`."""
    command = [sys.executable, "-m", "peerloom.experiments.emulated_jobs"]
    # In a session of its own, a Ctrl-C is ours alone.
    asker = testbed.popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True)
    try:
        yield lambda job: _ask(testbed, asker, job)
    finally:
        asker.kill()
        asker.communicate()


def warm_up(ask: Ask, nodes: int) -> None:
    """One job on all nodes with slots, that nothing is measured of: afterwards each forks workers at once."""
    ask(EmulatedJob("mnist", nodes, None, 64, 0.0, 0.0, steps=1))


def train(client: Client, job: EmulatedJob) -> Row:
    """One job to its end. Raises InternalError for one that ended in any way but success or no compute.

    `step_s` is by the trainer's clock, from the last commit of the warm-up to the last of all; `compute_s` is
    rank 0's, and `communication_s` the rest: waiting for the others, messages, and the system's own work.
    """
    handle = client.train(
        "emulated",
        requests=job.requests,
        min_slots=job.min_slots,
        min_workers=job.workers,
        max_workers=job.workers,
        policy=job.policy,
        seed=job.seed,
        batch_size=job.batch,
        epochs=1,
        arguments={
            "like": job.like,
            "sample_ms": f"{1000 * job.sample_s:.9f}",
            "step_ms": f"{1000 * job.step_s:.9f}",
            "samples": str(job.batch * (WARM_UP + job.steps)),
        },
        backend="gloo",
        equal_shares=True,
    )
    committed: list[StepCommitted] = []
    for event in handle.watch():
        if isinstance(event, StepCommitted):
            committed.append(event)
        if isinstance(event, StateChanged) and event.is_final:
            break
    result, status = handle.result(_JOB_LIMIT_S), handle.status()
    if result.state not in ("succeeded", "no_compute"):
        raise InternalError(f"A job of the experiment ended as {result.state}: {result.reason}")
    assert status.submit_time is not None, "the trainer stamps each job"
    assert status.end_time is not None, "it has ended"
    return {
        "state": result.state,
        "workers": len(status.workers),
        "asked": [one.name for one in status.answers],
        "nodes": {one.name: one.accepted_slots for one in status.answers if one.accepted},
        "whole_s": round((status.end_time - status.submit_time).total_seconds(), 4),
        **(step_parts(committed) if result.state == "succeeded" else {}),
    }


def step_parts(committed: Sequence[StepCommitted]) -> Row:
    """A step's mean after the warm-up, and its parts, in seconds."""
    times = [one.time for one in committed[WARM_UP - 1 :]]
    assert times[0] is not None, "the trainer stamps each event"
    assert times[-1] is not None, "the trainer stamps each event"
    step_s = (times[-1] - times[0]).total_seconds() / (len(times) - 1)
    compute_s = fmean(one.compute_s for one in committed[WARM_UP:])
    return {
        "step_s": round(step_s, 6),
        "compute_s": round(compute_s, 6),
        "communication_s": round(step_s - compute_s, 6),
    }


def is_faithful(row: Row) -> bool:
    """Whether the emulator kept up while this job ran; a job without steps has nothing to be late for."""
    lag_s = row.get("lag_s")
    return lag_s is None or "step_s" not in row or lag_s <= LAG_PART * row["step_s"]


def _ask(testbed: Testbed, asker: "subprocess.Popen[bytes]", job: EmulatedJob) -> Row:
    """One job, with a look at the emulator's lag and counters all the while.

    Raises DeadlineError after five minutes, and InternalError for a job that failed.
    """
    assert asker.stdin is not None, "it was opened with pipes"
    assert asker.stdout is not None, "it was opened with pipes"
    samples = [testbed.backend.stats()]
    asker.stdin.write(json.dumps(asdict(job)).encode() + b"\n")
    asker.stdin.flush()
    deadline_s = time.monotonic() + _JOB_LIMIT_S
    with DefaultSelector() as selector:
        selector.register(asker.stdout, EVENT_READ)
        while not selector.select(_LOOK_S):
            samples.append(testbed.backend.stats())
            if time.monotonic() > deadline_s:
                raise DeadlineError(f"A job of the experiment didn't end within {_JOB_LIMIT_S:.0f} s: {job}")
    line = asker.stdout.readline()
    samples.append(testbed.backend.stats())
    if not line:
        raise InternalError("The process that asks inside the testbed has ended; what it said stands above.")
    row: Row = json.loads(line)
    if "error" in row:
        raise InternalError(row["error"])
    passed = traffic_between(testbed.plan, samples)
    return {**row, "lag_s": passed.lag_worst_s, "network_bytes": passed.total_bytes}


def main() -> None:
    """Reads jobs and answers until stdin ends."""
    with Client() as client:
        for line in sys.stdin:
            try:
                row = train(client, EmulatedJob(**json.loads(line)))
            except PeerloomError as error:
                row = {"error": error.message}
            print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main()
