"""Rounds of local steps without a network: each rank is a thread, and their changes meet in memory."""

import threading
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from peerloom.v1.trainer_pb2 import JobSpec
from peerloom.worker.delayed_round import make_delayed_round
from peerloom.worker.group.waits import GenerationBrokenError, TensorFuture
from peerloom.worker.mesh.mesh import Mesh
from peerloom.worker.round_work import make_round
from peerloom.worker.sync import SyncTraffic
from peerloom.worker.sync.delayed_steps import DelayedSteps
from peerloom.worker.task import Split, Task
from peerloom.worker.training import Training

LIMIT_S = 60
SAMPLES, BATCH = 22, 4  # batches of 4, 4, 4, 4, 4 and 2


class Lines(Task):
    """A small network in double precision, so that only a wrong weight makes a difference."""

    def __init__(self, momentum: float = 0.0) -> None:
        self.momentum = momentum

    def model(self) -> nn.Module:
        return nn.Sequential(nn.Linear(3, 5), nn.Tanh(), nn.Linear(5, 2)).double()

    def data(self) -> tuple[Split, Split]:
        inputs = torch.randn(SAMPLES, 3, generator=torch.Generator().manual_seed(5), dtype=torch.float64)
        split = Split(inputs, (inputs[:, 0] > inputs[:, 1]).long())
        return split, split

    def optimiser(self, parameters: Iterable[nn.Parameter], learning_rate: float) -> torch.optim.Optimizer:
        return torch.optim.SGD(parameters, lr=learning_rate, momentum=self.momentum)


class Paced(Lines):
    """With a rate that falls with each batch, clipping, and pieces of two samples."""

    clip_norm = 0.05
    micro_batch = 2

    def scheduler(
        self, optimiser: torch.optim.Optimizer, total_steps: int
    ) -> torch.optim.lr_scheduler.LRScheduler:
        return torch.optim.lr_scheduler.LinearLR(optimiser, 1.0, 0.1, total_steps)


class Slope(Task):
    """One number w, first 1; the loss of a sample x is w * x, so its gradient is x, whatever w is."""

    def model(self) -> nn.Module:
        model = nn.Linear(1, 1, bias=False).double()
        nn.init.ones_(model.weight)
        return model

    def data(self) -> tuple[Split, Split]:
        inputs = torch.arange(1.0, 13.0, dtype=torch.float64).reshape(12, 1)
        return Split(inputs, inputs), Split(inputs, inputs)

    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return outputs[:, 0]

    def optimiser(self, parameters: Iterable[nn.Parameter], learning_rate: float) -> torch.optim.Optimizer:
        return torch.optim.SGD(parameters, lr=learning_rate)


class Memory:
    """Where the ranks' gradients meet."""

    def __init__(self, ranks: int) -> None:
        self.said: list[tuple[list[Tensor], float]] = [([], 0.0)] * ranks
        self.all_are_there = threading.Barrier(ranks, timeout=LIMIT_S)


class MemorySync:
    """One rank's synchroniser: sums as others do, without a network."""

    def __init__(self, model: nn.Module, memory: Memory, rank: int) -> None:
        self.traffic = SyncTraffic()
        self._model, self._memory, self._rank = model, memory, rank

    def forward(self, inputs: Tensor) -> Tensor:
        outputs: Tensor = self._model(inputs)
        return outputs

    def backward(self, loss: Tensor, counts: Sequence[int]) -> float:
        loss.backward()  # type: ignore[no-untyped-call]  # torch leaves it untyped
        own = [parameter.grad for parameter in self._model.parameters() if parameter.grad is not None]
        self._memory.said[self._rank] = ([gradient.clone() for gradient in own], float(loss.detach()))
        self._memory.all_are_there.wait()
        for i, gradient in enumerate(own):
            gradient.copy_(sum(said[i] for said, _ in self._memory.said))
        return sum(part for _, part in self._memory.said)

    def close(self) -> None:
        pass


class Seat:
    """A rank in a group; `on_check` is called between its local steps with the number of the check.

    With a `mesh` ranks may average in groups, each on a node of its own.
    """

    def __init__(
        self,
        rank: int,
        on_check: Callable[[int], None] = lambda number: None,
        generation: int = 1,
        mesh: Mesh | None = None,
        world_size: int = 1,
    ) -> None:
        self.rank, self.generation, self.mesh, self.world_size = rank, generation, mesh, world_size
        self.node_ids = [f"node-{rank + 1}" for rank in range(world_size)]
        self.checks: list[int | None] = []
        self._on_check = on_check

    def result(self, future: TensorFuture) -> Tensor:
        found = future.wait()
        if isinstance(found, str):
            raise RuntimeError(found)
        return found

    def check(self, step: int | None = None) -> None:
        self.checks.append(step)
        self._on_check(len(self.checks))


def begin(task: Task, sync: str, batch: int = BATCH, seed: int = 3) -> Training:
    spec = JobSpec(epochs=3, batch_size=batch, learning_rate=0.1, seed=seed, sync=sync)
    return Training(task, spec, torch.device("cpu"))


def make(training: Training, memory: Memory, seat: Seat, shares: Sequence[int]) -> float:
    """One rank's round, up to the outer step."""
    assert training.local_steps is not None
    sync, steps = (
        MemorySync(training.exchanged, memory, seat.rank),
        training.steps_at_once(training.state.step),
    )
    group: Any = seat  # its twin in memory
    if isinstance(training.local_steps, DelayedSteps):
        return make_delayed_round(training, training.local_steps, group, sync, steps, shares).loss
    loss, _ = make_round(training, training.local_steps, group, sync, steps, shares)
    return loss


def commit(training: Training) -> None:
    training.state.updater.step()
    training.state.step = training.steps_at_once(training.state.step).stop


def train(
    members: list[Training], shares: Sequence[int], rounds: int, meshes: Sequence[Mesh | None] = ()
) -> list[float]:
    """So many rounds of all of them; their losses. All have the same bits after each."""
    losses = []
    seats = [
        Seat(rank, mesh=mesh, world_size=len(members))
        for rank, mesh in enumerate(meshes or [None] * len(members))
    ]
    with ThreadPoolExecutor(len(members)) as pool:
        for _ in range(rounds):
            memory = Memory(len(members))
            made = [
                pool.submit(make, member, memory, seat, shares)
                for member, seat in zip(members, seats, strict=True)
            ]
            losses.append({one.result(LIMIT_S) for one in made})
            for member in members:
                commit(member)
            assert len({member.state.fingerprint() for member in members}) == 1
            assert len({member.state.parameters_digest() for member in members}) == 1
    assert all(len(one) == 1 for one in losses), "all tell the same"
    return [loss for [loss] in losses]


def check_break_undoes(check: int, sync: str, rounds: int) -> None:
    """A round after the first breaks at a `check` of its own: it changed nothing, and goes on as undisturbed.

    It needs so many `rounds` more to show.
    """
    undisturbed, broken = begin(Paced(0.9), sync), begin(Paced(0.9), sync)
    for training in (undisturbed, broken):
        train([training], [1], rounds=1)
    before = weights(broken)
    with pytest.raises(GenerationBrokenError):
        make(broken, Memory(1), Seat(0, broken_at(check)), [1])
    assert torch.equal(weights(broken), before)
    broken.state.updater.clear()
    for training in (undisturbed, broken):
        train([training], [1], rounds)
    assert torch.equal(weights(broken), weights(undisturbed))


def check_break_undoes_for_both(members: list[Training], meshes: Sequence[Mesh], check: int) -> None:
    """Rank 1 hears at a `check` of its own that the round breaks, rank 0 as it waits: nothing has changed."""
    before = [weights(member) for member in members]
    memory = Memory(2)
    seats = [
        Seat(0, mesh=meshes[0], world_size=2),
        Seat(1, broken_at(check), mesh=meshes[1], world_size=2),
    ]
    with ThreadPoolExecutor(2) as pool:
        made = [
            pool.submit(make, member, memory, seat, [1, 1])
            for member, seat in zip(members, seats, strict=True)
        ]
        with pytest.raises(GenerationBrokenError):
            made[1].result(LIMIT_S)
        meshes[0].break_all("a peer fell silent")
        with pytest.raises(RuntimeError, match="fell silent"):
            made[0].result(LIMIT_S)
    for member, weight in zip(members, before, strict=True):
        assert torch.equal(weights(member), weight)
        member.state.updater.clear()


def plain_steps(task: Task, batches: int, batch: int = BATCH) -> Training:
    """What one process makes of so many batches."""
    training = begin(task, "", batch)
    for step in range(batches):
        own_step(training, step)
    return training


def own_step(training: Training, step: int) -> None:
    """A step of one process by itself, without rounds."""
    first, end = training.schedule.bounds(step)
    indices = training.order(training.schedule.epoch_of(step))[first:end]
    inputs, targets = training.task.batch(training.train, indices)
    training.task.loss(training.state.model(inputs), targets).mean().backward()
    commit(training)


def weights(training: Training) -> Tensor:
    return torch.cat([parameter.detach().flatten() for parameter in training.state.model.parameters()])


def broken_at(check: int) -> Callable[[int], None]:
    def break_there(number: int) -> None:
        if number == check:
            raise GenerationBrokenError("a peer fell silent")

    return break_there
