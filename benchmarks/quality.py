"""What is lost by sending less: what `quality_mnist` and `quality_text` have in common.

Jobs of 4 workers on this machine, each method with each seed; what is compared has the same seed, so the same
parameters at first and the same batches. Nothing here is timed. The exact method is the direct exchange,
which sends as much as the ring of an all-reduce. "One mean an epoch" hardly synchronises at all: a method has
to be nearer to the exact one.
"""

import statistics
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import torch
from safetensors.torch import load_file

from benchmarks.measure import Goal, Measurement, measurement
from peerloom.client.client import Client
from peerloom.embedded import Embedded
from peerloom.worker.batches import call_model
from peerloom.worker.evaluation import EVALUATION_BATCH
from peerloom.worker.task import Task, load_batch, load_data, load_task

WORKERS = 4
EXACT = "topology=direct"
ONE_MEAN = "period=10000"  # a round ends with its epoch at the latest
SEEDS = 5


@dataclass(frozen=True)
class Way:
    """A method; how many points or per cent it may lose, what part of the exact one's bytes it may send.

    `rate` is of the task's learning rate.
    """

    method: str
    may_lose: float | None = None
    may_send: float | None = None
    rate: float = 1.0

    @property
    def title(self) -> str:
        called = {ONE_MEAN: "one mean an epoch", EXACT: "the exact method"}.get(self.method, self.method)
        return called if self.rate == 1 else f"{called}, at {self.rate:g} times the learning rate"


@dataclass(frozen=True)
class Trial:
    """A task; its models are compared by loss in per cent of the exact method's, or by points of accuracy."""

    task: str
    title: str
    ways: tuple[Way, ...]
    by_loss: bool
    epochs: int
    arguments: dict[str, str] = field(default_factory=dict)
    data_roots: tuple[Path, ...] = ()


@dataclass(frozen=True)
class Outcome:
    """Of one job: correct answers of 100, mean loss, and the bytes that one worker gave to the others."""

    accuracy: float
    loss: float
    sent_bytes: int


LOCAL = tuple(f"period={period},outer=nesterov:1.0:0.6,codec=mxfp4" for period in (14, 32, 64))
PARTS = "period=1000,partial=7:1,codec=2bit"  # a round an epoch
# Whether averages in pairs are worth it: without them, with them, and with averages of all as often.
GROUPED = (Way("period=32"), Way("period=32,groups=2:8"), Way("period=8"))


def compared(trial: Trial, quick: bool) -> list[Measurement]:
    """The trial's methods in turn, seed by seed, each beside the exact one."""
    ways = [Way(EXACT), Way(ONE_MEAN), *trial.ways]
    outcomes: dict[Way, list[Outcome]] = {way: [] for way in ways}
    with _system(trial.data_roots) as client:
        for seed in range(1, 2 if quick else SEEDS + 1):
            for way in ways:
                outcomes[way].append(_outcome(client, trial, way, seed, quick))
                print(f"  {trial.task}, seed {seed}, {way.title}: {outcomes[way][-1]}", flush=True)
    found: list[Measurement] = []
    for way in ways[1:]:
        found += _beside_exact(trial, way, outcomes[way], outcomes[ways[0]])
    return found


@contextmanager
def _system(data_roots: tuple[Path, ...]) -> Iterator[Client]:
    with (
        tempfile.TemporaryDirectory() as state,
        Embedded(Path(state) / "state", (1,) * WORKERS, log_level="error", data_roots=data_roots) as system,
        Client(system.address) as client,
    ):
        yield client


def _outcome(client: Client, trial: Trial, way: Way, seed: int, quick: bool) -> Outcome:
    task = load_task(trial.task, trial.arguments)
    job = client.train(
        trial.task,
        requests=WORKERS,
        min_workers=WORKERS,
        max_workers=WORKERS,
        batch_size=8 * WORKERS,
        epochs=1 if quick else trial.epochs,
        arguments=trial.arguments,
        seed=seed,
        sync=way.method,
        learning_rate=way.rate * task.learning_rate,
        backend="gloo",
        equal_shares=True,
    )
    result = job.result().raise_for_state()
    with tempfile.TemporaryDirectory() as folder:
        loss = _test_loss(task, job.fetch_model(Path(folder, "model.safetensors")))
    assert result.metric is not None
    assert result.communicated_bytes is not None
    return Outcome(100 * result.metric, loss, result.communicated_bytes)


@torch.no_grad()
def _test_loss(task: Task, path: Path) -> float:
    _, test = load_data(task)
    model = task.model().eval()
    model.load_state_dict(load_file(path))
    total = 0.0
    for indices in torch.split(torch.arange(len(test)), EVALUATION_BATCH):
        inputs, targets = load_batch(task, test, indices, torch.device("cpu"))
        total += float(task.loss(call_model(model, inputs), targets).double().sum())
    return total / len(test)


def _beside_exact(trial: Trial, way: Way, ours: list[Outcome], exact: list[Outcome]) -> list[Measurement]:
    if trial.by_loss:
        unit, what = "%", "test loss above the exact method's"
        lost = [100 * (one.loss / other.loss - 1) for one, other in zip(ours, exact, strict=True)]
    else:
        unit, what = "points", "test accuracy below the exact method's"
        lost = [other.accuracy - one.accuracy for one, other in zip(ours, exact, strict=True)]
    may_lose = None if way.may_lose is None else Goal(way.may_lose, at_least=False)
    may_send = None if way.may_send is None else Goal(way.may_send, at_least=False, of_ratio=True)
    mean = statistics.fmean(one.loss if trial.by_loss else one.accuracy for one in exact)
    title = f"{trial.title} (the exact method's {'loss' if trial.by_loss else 'accuracy'}: {mean:.3f})"
    return [
        measurement(f"{way.title}: {what}: {title}", unit, lost, statistic="mean", goal=may_lose),
        measurement(
            f"{way.title}: sent by one worker: {trial.title}",
            "MB",
            [one.sent_bytes / 1e6 for one in ours],
            goal=may_send,
            rival="the exact method",
            rival_samples=[one.sent_bytes / 1e6 for one in exact],
        ),
    ]
