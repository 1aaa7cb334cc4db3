"""The stages of a pipeline as threads of one process, and the same training in one piece."""

import queue
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

import torch
from torch import Tensor, nn

from peerloom.kit.parallel_plan import parse_plan
from peerloom.kit.sync_method import NONE
from peerloom.v1.trainer_pb2 import JobSpec
from peerloom.worker.group.waits import TensorFuture
from peerloom.worker.plan.pipeline_training import PipelineTraining
from peerloom.worker.plan.stage_links import StageTensor
from peerloom.worker.plan.stage_message import TensorForm, decoded, encoded
from peerloom.worker.plan.stage_step import make_step
from peerloom.worker.plan.tensor_cuts import TensorCut
from peerloom.worker.step_share import share_of
from peerloom.worker.sync import SyncTraffic
from peerloom.worker.sync.alone import Alone
from peerloom.worker.task import Split, Task
from peerloom.worker.training import Training

LIMIT_S = 60.0
CPU = torch.device("cpu")
T = TypeVar("T")


class Lines:
    """What lies between the workers: queues, and a place where all give their numbers."""

    def __init__(self, workers: int) -> None:
        self.queues = {
            (sender, receiver): queue.Queue[StageTensor]()
            for sender in range(workers)
            for receiver in range(workers)
        }
        self.rows: list[Sequence[float]] = [()] * workers
        self.beside: dict[int, Lines] = {}
        self.lock = threading.Lock()
        self.barrier = threading.Barrier(workers, timeout=LIMIT_S)


class QueueLinks:
    """The links of one worker."""

    def __init__(self, lines: Lines, rank: int) -> None:
        self.traffic = SyncTraffic()
        self.rank, self.workers = rank, len(lines.rows)
        self._lines = lines
        self._receiver = ThreadPoolExecutor(1)  # what is awaited comes in turn
        self._beside: dict[int, QueueLinks] = {}

    def send(self, rank: int, tensor: Tensor, *, wants_gradient: bool = False, codec: str = NONE) -> None:
        content = tensor.detach().clone()
        form = TensorForm.of(content, wants_gradient, codec)
        came = decoded(encoded(content.contiguous(), form.codec), form)
        self._lines.queues[self.rank, rank].put(StageTensor(came, wants_gradient))

    def receive(self, rank: int) -> StageTensor:
        return self._lines.queues[rank, self.rank].get(timeout=LIMIT_S)

    def begin_send(self, rank: int, content: Tensor) -> TensorFuture:
        self.send(rank, content)
        return _done(content)

    def begin_receive(self, rank: int, target: Tensor) -> TensorFuture:
        future: TensorFuture = torch.futures.Future()

        def receive() -> None:
            target.copy_(self.receive(rank).tensor)
            future.set_result(target)

        self._receiver.submit(receive)
        return future

    def post(self, rank: int, content: Tensor) -> None:
        self.send(rank, content)

    def beside(self, channel: int) -> "QueueLinks":
        with self._lines.lock:
            lines = self._lines.beside.setdefault(channel, Lines(self.workers))
        return self._beside.setdefault(channel, QueueLinks(lines, self.rank))

    def result(self, future: TensorFuture) -> Tensor:
        tensor = future.wait()
        assert isinstance(tensor, Tensor)
        return tensor

    def flush(self, at_most: int = 0) -> None:
        pass

    def gather(self, row: Sequence[float]) -> list[list[float]]:
        self._lines.rows[self.rank] = row
        self._lines.barrier.wait()
        rows = [list(each) for each in self._lines.rows]
        self._lines.barrier.wait()  # nobody says the next before all have heard this
        return rows

    @contextmanager
    def patient(self, size_bytes: int) -> Iterator[None]:
        yield


def _done(content: Tensor) -> TensorFuture:
    future: TensorFuture = torch.futures.Future()
    future.set_result(content)
    return future


class Waves(Task):
    """Four layers with parameters, a schedule, moments and a clipped norm, on 70 samples."""

    batch_size = 20
    epochs = 13
    learning_rate = 0.05
    clip_norm = 0.05

    def model(self) -> nn.Module:
        return nn.Sequential(
            nn.Linear(6, 16),
            nn.Tanh(),
            nn.Sequential(nn.Linear(16, 12), nn.GELU(), nn.LayerNorm(12)),
            nn.Linear(12, 3),
        )

    def data(self) -> tuple[Split, Split]:
        inputs = torch.rand(90, 6, generator=torch.Generator().manual_seed(3))
        targets = (inputs.sum(1) * 2).long() % 3
        return Split(inputs[:70], targets[:70]), Split(inputs[70:], targets[70:])

    def optimiser(self, parameters: Iterable[nn.Parameter], learning_rate: float) -> torch.optim.Optimizer:
        return torch.optim.AdamW(parameters, lr=learning_rate)

    def scheduler(
        self, optimiser: torch.optim.Optimizer, total_steps: int
    ) -> torch.optim.lr_scheduler.LRScheduler:
        return torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, total_steps)


class Sparse(Waves):
    """An embedding whose gradients are sparse."""

    def model(self) -> nn.Module:
        return nn.Sequential(nn.Linear(6, 4), nn.Embedding(9, 3, sparse=True))

    def optimiser(self, parameters: Iterable[nn.Parameter], learning_rate: float) -> torch.optim.Optimizer:
        return torch.optim.SGD(parameters, lr=learning_rate)


def task_of(model: Callable[[], nn.Module], **more: object) -> Task:
    """As `Waves`, with this model."""
    made: Task = type("Modelled", (Waves,), {"model": lambda self: model(), **more})()
    return made


def spec_of(task: Task, plan: str = "") -> JobSpec:
    return JobSpec(
        task="test:Task",
        plan=plan,
        seed=7,
        epochs=task.epochs,
        batch_size=task.batch_size,
        learning_rate=task.learning_rate,
    )


def training_of(task: Task, plan: str) -> PipelineTraining:
    """A worker's training under a plan, on a slot that needn't measure its speed."""
    return PipelineTraining(task, spec_of(task, plan), CPU, lambda device: 1.0)


class Pipeline:
    """The workers' trainings; each of `work` runs in a thread for each of them."""

    def __init__(
        self, task: Task, plan: str, checkpoint: Path | None = None, shares: Sequence[int] = ()
    ) -> None:
        by_rank = parse_plan("plan", plan).ranks.by_rank()
        self.trainings = [training_of(task, plan) for _ in by_rank]
        for stage, training in zip(
            by_rank, self.trainings, strict=True
        ):  # in turn: all draw from one generator
            training.enter(stage, shares, checkpoint=checkpoint)

    def work(self, function: Callable[[PipelineTraining, QueueLinks], T]) -> list[T]:
        lines = Lines(len(self.trainings))

        def begin(training: PipelineTraining, links: QueueLinks) -> T:
            if training.piece is not None:
                training.piece.connect(links)
            return function(training, links)

        with ThreadPoolExecutor(len(self.trainings)) as pool:
            begun = [
                pool.submit(begin, training, QueueLinks(lines, rank))
                for rank, training in enumerate(self.trainings)
            ]
            return [each.result(LIMIT_S) for each in begun]

    def parameters(self) -> dict[str, Tensor]:
        """Those of the whole, of which workers may have pieces."""
        parts: dict[str, list[Tensor]] = {}
        cuts: dict[str, TensorCut] = {}
        for training in self.trainings:
            own, cut = training.pieces.given(training.stage_model.state_dict(), str)
            cuts |= cut
            for name, tensor in own.items():
                parts.setdefault(name, []).append(tensor.detach())
        return {name: cuts[name].whole(each) if name in cuts else each[-1] for name, each in parts.items()}


def steps(count: int) -> Callable[[PipelineTraining, QueueLinks], list[float]]:
    """Work that makes so many steps, and gives their losses."""
    return lambda training, links: [make_step(training, links, lambda: None).loss for _ in range(count)]


def check_near(found: dict[str, Tensor], expected: dict[str, Tensor]) -> None:
    """They are the same but for rounding."""
    assert found.keys() == expected.keys()
    for name, tensor in expected.items():
        assert torch.allclose(found[name], tensor, rtol=0, atol=1e-5), name


def in_one_piece(task: Task, steps: int, training: Training | None = None) -> tuple[Training, list[float]]:
    """One worker's training after so many more steps, and their losses."""
    training = training or Training(task, spec_of(task), CPU)
    state, alone, losses = training.state, Alone(training.state.model), []
    for _ in range(steps):
        first, end = training.schedule.bounds(state.step)
        share = share_of(training, state.step, [end - first], 0)
        losses.append(alone.backward(share.walk(training, alone.forward, state.updater), [end - first]))
        state.updater.step()
        state.step += 1
        state.epoch_loss_sum += losses[-1] * (end - first)
    return training, losses
