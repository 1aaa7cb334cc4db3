"""What is lost by sending less: accuracy and loss on the test set after the same samples, and the bytes sent.

Run by `make bench-quality MNIST=DIR`, with a folder of MNIST's files. Jobs of 4 workers on this machine, each
method with each seed; what is compared has the same seed, so the same parameters at first and the same
batches. Nothing here is timed. The exact method is the direct exchange, which sends as much as the ring of an
all-reduce. "One mean an epoch" hardly synchronises at all: a method has to be nearer to the exact one.
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
from benchmarks.mnist_files import mnist_arguments
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


@dataclass(frozen=True)
class Outcome:
    """Of one job: correct answers of 100, mean loss, and the bytes that one worker gave to the others."""

    accuracy: float
    loss: float
    sent_bytes: int


# Whether averages in pairs are worth it: without them, with them, and with averages of all as often.
GROUPED = (Way("period=32"), Way("period=32,groups=2:8"), Way("period=8"))


def run(quick: bool) -> list[Measurement]:
    """Each trial's methods in turn, seed by seed."""
    trials = _trials(arguments := mnist_arguments())
    found: list[Measurement] = []
    with _system(Path(arguments["data"])) as client:
        for trial in trials:
            ways = [Way(EXACT), Way(ONE_MEAN), *trial.ways]
            outcomes: dict[Way, list[Outcome]] = {way: [] for way in ways}
            for seed in range(1, 2 if quick else SEEDS + 1):
                for way in ways:
                    outcomes[way].append(_outcome(client, trial, way, seed, quick))
                    print(f"  {trial.task}, seed {seed}, {way.title}: {outcomes[way][-1]}", flush=True)
            for way in ways[1:]:
                found += _compared(trial, way, outcomes[way], outcomes[ways[0]])
    return found


def profile(quick: bool) -> str:
    """None: what a method loses shows in no profile."""
    return ""


def _trials(arguments: dict[str, str]) -> list[Trial]:
    part = ", nine tenths of the 10,000 test images" if "test_fraction" in arguments else ""
    local = tuple(f"period={period},outer=nesterov:1.0:0.6,codec=mxfp4" for period in (14, 32, 64))
    plain = "period=14,codec=mxfp4"
    parts = "period=1000,partial=6:1,codec=ternary"  # a round an epoch
    mnist = (
        Way("codec=int4", 0.5),
        Way("codec=mxfp4", 0.5),
        Way("codec=1bit"),
        Way("codec=powersgd:4"),
        Way("codec=powersgd:1"),
        Way(local[0], 0.5, 1 / 100),
        Way(local[1], 0.5, 1 / 100),
        Way(local[2], 1.0, 1 / 400),
        Way(f"{local[0]},delay=1", 0.5, 1 / 100),
        Way(parts, 0.5, 1 / 100),
        Way("cocod-sgd"),
        Way("local-sgd"),
        *GROUPED,
    )
    text = (
        Way("codec=int4", 1.0),
        Way("codec=mxfp4", 1.0),
        Way("codec=powersgd:4"),
        Way(local[0], 1.0, 1 / 100),
        Way(local[1], 1.0, 1 / 100),
        Way(local[2]),
        Way(f"{local[0]},delay=1", 1.0, 1 / 100),
        Way("cocod-sgd"),
        Way("local-sgd"),
        *GROUPED,
        Way(plain, 1.0, 1 / 100),
        Way(parts, 1.0, 1 / 100),
        # Whether it is parts that do it, their codec, or neither.
        Way("period=6,codec=ternary"),
        Way("period=1000,partial=6:1"),
        Way("codec=ternary"),
        # What the correction for Adam is worth, and what more of the rate would be to all.
        Way("period=8", rate=0.5),
        Way("period=8", rate=2),
        Way(plain, rate=2),
        Way(parts, rate=2),
        Way(EXACT, rate=2),
    )
    return [
        Trial("mnist", f"MNIST network{part}, 3 epochs", mnist, False, 3, arguments),
        Trial("text", "text transformer, 2 epochs of Python's reference", text, True, 2),
    ]


@contextmanager
def _system(data: Path) -> Iterator[Client]:
    with (
        tempfile.TemporaryDirectory() as state,
        Embedded(Path(state) / "state", (1,) * WORKERS, log_level="error", data_roots=(data,)) as system,
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


def _compared(trial: Trial, way: Way, ours: list[Outcome], exact: list[Outcome]) -> list[Measurement]:
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
