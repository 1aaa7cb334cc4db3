"""One worker of four at a third of the speed, by BSP, SSP, ASP and with a backup: throughput and accuracy.

Run by `make bench-staleness`. The samples are real digits and cost waiting, not computing. The rival of each
method is BSP with equal shares, in which all wait for the slowest; beside them Peerloom's own BSP, which
divides batches by speed, so that a worker that is always slow costs it little. Each round trains each method
once, with the round's seed; throughput is that of the second half of its steps.
"""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil

from benchmarks.committed import seconds_between
from benchmarks.measure import Measurement, let_nodes_import, measurement
from peerloom.client.client import Client
from peerloom.client.types import EpochFinished, StepCommitted
from peerloom.embedded import Embedded

WORKERS, BATCH, LEARNING_RATE = 4, 64, 0.02
RIVAL = "BSP, equal shares"
# Name, sync, and whether shares are equal.
METHODS = (
    (RIVAL, "bsp-a2a", True),
    ("BSP, shares by speed", "bsp-a2a", False),
    ("SSP, bound 2", "ssp:2", False),
    ("ASP", "asp", False),
    ("ASP, weighted by age", "asp,late=weighted", False),
    ("backup of a quarter", "backup=0.75", False),
    ("backup of a quarter, bound 2", "ssp:2,backup=0.75", False),
)


@dataclass(frozen=True)
class Outcome:
    """Of one job: its samples a second, and what part of the test set its model gets right, in per cent."""

    samples_per_s: float
    accuracy: float


def run(quick: bool) -> list[Measurement]:
    """Each method once a round, one after the other."""
    rounds, epochs = (1, 2) if quick else (7, 12)
    found: dict[str, list[Outcome]] = {name: [] for name, _, _ in METHODS}
    with _system() as (client, system, slow):
        for seed in range(1, rounds + 1):
            for name, sync, is_equal in METHODS:
                found[name].append(_train(client, system, slow, sync, is_equal, seed, epochs))
    measurements = []
    for name, outcomes in found.items():
        for what, unit in (("samples_per_s", "samples/s"), ("accuracy", "%")):
            samples = [getattr(each, what) for each in outcomes]
            is_rival = name == RIVAL
            rivals = [] if is_rival else [getattr(each, what) for each in found[RIVAL]]
            title = f"{name}: {'throughput' if unit == 'samples/s' else 'accuracy'}"
            rival = "" if is_rival else RIVAL
            measurements.append(measurement(title, unit, samples, rival=rival, rival_samples=rivals))
    return measurements


def profile(quick: bool) -> str:
    """One job by SSP, step by step: how old the gradients are that it takes."""
    with _system() as (client, system, slow):
        committed, _ = _trained(client, system, slow, "ssp:2", False, 1, 1 if quick else 3)
    lines = [f"step {one.step:4d}: {1000 * one.step_s:7.1f} ms, {one.stale}" for one in committed[::5]]
    return "\n".join(["one job of 4 workers by ssp:2", "", *lines, ""])


@contextmanager
def _system() -> Iterator[tuple[Client, Embedded, Path]]:
    """A client, its system, and a file that workers may read."""
    let_nodes_import()
    with (
        tempfile.TemporaryDirectory() as state,
        tempfile.TemporaryDirectory() as data,
        Embedded(Path(state), slots=(1,) * WORKERS, log_level="error", data_roots=(Path(data),)) as system,
        Client(system.address) as client,
    ):
        yield client, system, Path(data) / "slow"


def _train(
    client: Client, system: Embedded, slow: Path, sync: str, is_equal: bool, seed: int, epochs: int
) -> Outcome:
    committed, accuracy = _trained(client, system, slow, sync, is_equal, seed, epochs)
    half = len(committed) // 2
    samples = sum(each.samples for each in committed[half:])
    return Outcome(samples / seconds_between(committed[half - 1], committed[-1]), accuracy)


def _trained(
    client: Client, system: Embedded, slow: Path, sync: str, is_equal: bool, seed: int, epochs: int
) -> tuple[list[StepCommitted], float]:
    """The steps, and the accuracy after the last epoch, in per cent."""
    slow.write_text("")
    job = client.train(
        "benchmarks.staleness_task:SlowDigits",
        requests=WORKERS,
        min_workers=WORKERS,
        max_workers=WORKERS,
        arguments={"slow": str(slow)},
        epochs=epochs,
        batch_size=BATCH,
        learning_rate=LEARNING_RATE,
        seed=seed,
        sync=sync,
        equal_shares=is_equal,
        backend="gloo",
    )
    committed: list[StepCommitted] = []
    accuracy = 0.0
    for event in job.watch():
        if isinstance(event, StepCommitted):
            committed.append(event)
            if len(committed) == 1:
                of_node = psutil.Process(system.pids["node-1"]).children(recursive=True)
                slow.write_text(" ".join(str(each.pid) for each in of_node))
        if isinstance(event, EpochFinished):
            accuracy = 100 * event.metric
    result = job.result()
    if not result.succeeded:
        raise SystemExit(f"a job by {sync} ended as {result.state}: {result.reason}")
    return committed, accuracy
