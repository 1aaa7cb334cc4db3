"""An embedded system for the length of an experiment, and jobs on it."""

import os
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from peerloom.client.client import Client
from peerloom.client.types import Job
from peerloom.embedded import Embedded
from peerloom.errors import FailedPreconditionError, InternalError
from peerloom.experiments.datasets import Data
from peerloom.experiments.workloads import Workload

JOB_LIMIT_S = 1800.0
# A node that gets ready while a job trains on others would be measured with it.
_NOT_WARM = {"PEERLOOM_NODE_KEEP_WARM": "false"}


@contextmanager
def live_system(
    slots: Sequence[int], data_roots: Sequence[Path] = (), *, keep_warm: bool = False
) -> Iterator[Client]:
    """A fresh system of nodes node-1, node-2, ... with these slots, and a client of it; gone at the end.

    Its jobs may name files below the `data_roots`. With `keep_warm` nodes get ready before they are asked.
    """
    with (
        tempfile.TemporaryDirectory(prefix="peerloom-experiment-") as folder,
        _environment({} if keep_warm else _NOT_WARM),
        Embedded(Path(folder) / "state", slots, log_level="error", data_roots=data_roots) as system,
        Client(system.address) as client,
    ):
        yield client


@contextmanager
def running_system(address: str, nodes: int) -> Iterator[Client]:
    """A client of a system that runs already. Raises FailedPreconditionError with too few living nodes."""
    with Client(address) as client:
        able = [node for node in client.nodes(states=["alive"]) if node.slots and not node.draining]
        if len(able) < nodes:
            raise FailedPreconditionError(
                f"The system at {address} has {len(able)} living nodes with slots, and {nodes} are needed: "
                "ask for fewer --workers, or start more nodes.",
                reason="TOO_FEW_NODES",
            )
        yield client


@contextmanager
def scratch_folder() -> Iterator[Path]:
    """A temporary folder for generated data."""
    with tempfile.TemporaryDirectory(prefix="peerloom-data-") as folder:
        os.chmod(folder, 0o755)  # nodes of a testbed are users of their own
        yield Path(folder)


@contextmanager
def _environment(values: dict[str, str]) -> Iterator[None]:
    """The processes started inside see these; what was set before comes back."""
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


@dataclass(frozen=True)
class Request:
    """How a job asks: `workers` is the most it takes (None: all it is given)."""

    requests: int
    workers: int | None = None
    min_slots: int = 1
    batch_size: int | None = None
    policy: str = ""
    seed: int = 0


def train(client: Client, workload: Workload, data: Data, request: Request) -> Job:
    """One job to its end. Raises InternalError for one that ended in any way but success or no compute."""
    handle = client.train(
        workload.task,
        requests=request.requests,
        epochs=workload.epochs,
        batch_size=request.batch_size,
        policy=request.policy,
        seed=request.seed,
        max_workers=request.workers,
        min_slots=request.min_slots,
        arguments={"data": str(data.folder)},
        backend="auto",
    )
    result = handle.result(JOB_LIMIT_S)
    job = handle.status()
    if result.state not in ("succeeded", "no_compute"):
        raise InternalError(f"A job of the experiment ended as {result.state}: {result.reason}")
    return job


def job_row(job: Job) -> dict[str, object]:
    """What an experiment keeps of a job: `training_s` is time in steps, `whole_s` from handing in to the
    end.
    """
    result = job.result
    assert result is not None, "only jobs that have ended are recorded"
    assert job.submit_time is not None, "the trainer stamps each job"
    assert job.end_time is not None, "it has ended"
    return {
        "state": result.state,
        "reason": result.reason,
        "workers": len(job.workers),
        "nodes": {one.name: one.accepted_slots for one in job.answers if one.accepted},
        "asked": [one.name for one in job.answers],
        "training_s": _rounded(result.training_s),
        "whole_s": _rounded((job.end_time - job.submit_time).total_seconds()),
        "samples_per_s": _rounded(result.samples_per_s),
        "compute_s_per_step": _rounded(result.compute_s_per_step),
        "communication_s_per_step": _rounded(result.communication_s_per_step),
        "metric": _rounded(result.metric),
    }


def _rounded(value: float | None) -> float | None:
    return None if value is None else float(f"{value:.4g}")
