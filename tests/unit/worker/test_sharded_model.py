"""Aim: workers that hold a shard each train all layers, and have memory for others' only while they compute.

Method: they are threads joined by queues, beside the same training in one piece or as a pipeline. Equality
with one process, files and the test set are tested where pipelines' are.
"""

import threading
from collections.abc import Callable
from typing import cast

import pytest
import torch
from stages_in_threads import (
    CPU,
    Pipeline,
    QueueLinks,
    Sparse,
    Waves,
    check_near,
    in_one_piece,
    steps,
    task_of,
    training_of,
)
from torch import Tensor, nn

from peerloom.errors import InvalidArgumentError
from peerloom.kit.parallel_plan import parse_plan
from peerloom.worker.plan import shard_step
from peerloom.worker.plan.blueprint import draw, indexed_data, without_values
from peerloom.worker.plan.pipeline_training import PipelineTraining
from peerloom.worker.plan.shard_units import units_of
from peerloom.worker.plan.sharded_model import ShardedModel
from peerloom.worker.plan.stage_loop import evaluate_stage
from peerloom.worker.plan.stage_step import make_step
from peerloom.worker.step_chance import seed_of
from peerloom.worker.task import Split, Task

Model = Callable[[], nn.Module]


def equal_to_one_piece(task: Task, plan: str, count: int) -> None:
    expected, losses = in_one_piece(task, count)
    shards = Pipeline(task, plan)
    told = shards.work(steps(count))
    assert torch.allclose(torch.tensor(told[0]), torch.tensor(losses), rtol=0, atol=1e-5)
    check_near(shards.parameters(), expected.state.model.state_dict())


class Scaled(nn.Module):
    """A constant in the state, a parameter that isn't trained, and one that only large batches use."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.scale: Tensor
        self.register_buffer("scale", torch.linspace(0.5, 2, size))
        self.frozen = nn.Parameter(torch.ones(size), requires_grad=False)
        self.weight = nn.Parameter(torch.ones(size))

    def forward(self, inputs: Tensor) -> Tensor:
        return inputs * self.scale + self.frozen * self.weight


class Doubled(nn.Module):
    """One linear layer twice, under two names: a tensor of one unit that has several."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(8, 8)
        self.second = self.first

    def forward(self, inputs: Tensor) -> Tensor:
        once: Tensor = self.first(inputs)
        again: Tensor = self.second(once.relu())
        return again


class Residual(nn.Module):
    """Is traced: two layers, of which one reads a parameter by itself."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.last = nn.Linear(6, 6), nn.Linear(6, 6), nn.Linear(6, 3)
        self.scale = nn.Parameter(torch.full((6,), 0.5))

    def forward(self, inputs: Tensor) -> Tensor:
        left: Tensor = torch.relu(self.first(inputs)) + inputs
        return cast(Tensor, self.last(self.second(left) * self.scale))


def various() -> nn.Module:
    return nn.Sequential(
        nn.Flatten(), nn.Linear(6, 8), nn.ReLU(inplace=True), Scaled(8), Doubled(), nn.GELU(), nn.Linear(8, 3)
    )


def test_all_kinds_of_tensors_travel_constants_frozen_and_shared_ones() -> None:
    equal_to_one_piece(task_of(various), "sharded=3", 12)


def test_a_traced_model_computes_in_shards() -> None:
    equal_to_one_piece(task_of(Residual), "sharded=3", 8)


def test_a_batch_with_fewer_samples_than_workers_leaves_some_without_a_part() -> None:
    """Batches of 23, 23, 23 and 1 sample."""
    equal_to_one_piece(task_of(Waves().model, batch_size=23), "sharded=4", 8)


def test_a_task_s_own_micro_batch_bounds_the_parts() -> None:
    equal_to_one_piece(task_of(Waves().model, micro_batch=3), "sharded=2", 4)


def test_numbers_of_fewer_bits_compute_and_gradients_keep_theirs() -> None:
    """A part's rounding is that of its own samples: shards and a pipeline with the same parts agree."""
    task = task_of(Waves().model, autocast="bf16")
    shards, pipeline = Pipeline(task, "sharded=3"), Pipeline(task, "pipeline=2,micro_batches=3")
    told, expected = shards.work(steps(4))[0], pipeline.work(steps(4))[0]
    assert torch.allclose(torch.tensor(told), torch.tensor(expected), rtol=0, atol=1e-4)


def test_chance_is_that_of_a_pipeline_with_as_many_micro_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each layer is seeded by step, micro-batch and its own number. Threads here have one generator."""
    seeds: list[int] = []
    monkeypatch.setattr(shard_step, "seed_torch", lambda device, seed: seeds.append(seed))
    Pipeline(Waves(), "sharded=2").work(steps(1))
    assert {seed_of(7, 0, number, layer) for number in range(2) for layer in range(6)} < set(seeds)


def test_a_larger_test_set_goes_through_in_rounds() -> None:
    """700 samples are three parts: two workers, and then one."""
    inputs = torch.rand(770, 6, generator=torch.Generator().manual_seed(3))
    targets = (inputs.sum(1) * 2).long() % 3
    data = Split(inputs[:70], targets[:70]), Split(inputs[70:], targets[70:])
    task = task_of(Waves().model, data=lambda self: data)
    expected, _ = in_one_piece(task, 4)
    with torch.no_grad():
        right = expected.state.model(inputs[70:]).argmax(1) == targets[70:]
    shards = Pipeline(task, "sharded=2")
    shards.work(steps(4))
    told = shards.work(lambda training, links: evaluate_stage(training, links).metric)
    assert told == pytest.approx([float(right.float().mean())] * 2, abs=2e-3)


def test_others_layers_have_memory_only_while_they_are_computed() -> None:
    """Of units of 9,408 bytes each no worker ever has more than one that isn't its own."""
    task = task_of(lambda: nn.Sequential(*(nn.Linear(48, 48) for _ in range(6)), nn.Linear(48, 3)), data=wide)
    shards = Pipeline(task, "sharded=2")
    most = dict.fromkeys(range(2), 0)

    def watch(rank: int, training: PipelineTraining) -> None:
        def look(*_: object) -> None:
            most[rank] = max(most[rank], training.shards.borrowed_bytes)

        first, *others = training.stage_model.whole.children()
        first.register_forward_hook(look)  # nothing before it needs a gradient
        for layer in others:
            layer.register_forward_hook(look)
            layer.register_full_backward_pre_hook(look)

    for rank, training in enumerate(shards.trainings):
        watch(rank, training)
    shards.work(steps(2))
    unit_bytes = 48 * 48 * 4 + 48 * 4
    assert most == {0: unit_bytes, 1: unit_bytes}
    for training in shards.trainings:
        assert training.shards.borrowed_bytes == 0
        own = training.blueprint.names(training.stage)
        there = {name for name, each in training.stage_model.whole.named_parameters() if not each.is_meta}
        assert there == own


def wide(_: Task) -> tuple[Split, Split]:
    inputs = torch.rand(90, 48, generator=torch.Generator().manual_seed(3))
    targets = (inputs.sum(1) * 2).long() % 3
    return Split(inputs[:70], targets[:70]), Split(inputs[70:], targets[70:])


def test_shards_are_cut_by_what_is_held_and_by_the_room_for_it() -> None:
    """Four layers of as many numbers: 2 to 2, or, by the trainer's shares, 1 to 3."""
    task = task_of(lambda: nn.Sequential(*(nn.Linear(48, 48) for _ in range(4))), data=wide)
    training = training_of(task, "sharded=2")
    assert training.blueprint.starts == (0, 2)
    assert training.free_bytes > 0
    assert training.speed_gflops == 0
    training.enter(1, [1, 3])
    assert training.blueprint.starts == (0, 1)


def refused(task: Task, plan: str) -> str:
    """What some worker raises: as it is cut, or in a step, in which the others wait for it then."""

    def step(training: PipelineTraining, links: QueueLinks) -> str:
        try:
            make_step(training, links, lambda: None)
        except InvalidArgumentError as error:
            links._lines.barrier.abort()
            return error.message
        except threading.BrokenBarrierError:
            pass
        return ""

    try:
        return "".join(Pipeline(task, plan).work(step))
    except InvalidArgumentError as error:
        return error.message


def test_what_can_not_be_in_shards_is_refused_with_the_reason() -> None:

    def tied(*between: nn.Module) -> nn.Module:
        first = nn.Linear(6, 6)
        return nn.Sequential(first, *between, first, nn.Linear(6, 3))

    apart = task_of(lambda: tied(nn.Linear(6, 6), nn.Linear(6, 6)))
    assert "weight belongs to" in refused(apart, "sharded=2")
    assert "whose values travel one after the other" in refused(
        task_of(lambda: tied(nn.Tanh())), "sharded=3:"
    )
    normalised = task_of(lambda: nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.Linear(8, 3)))
    assert "GroupNorm for BatchNorm" in refused(normalised, "sharded=2")
    assert "at most sharded=4: 4 of" in refused(Waves(), "sharded=5")


def test_sparse_gradients_are_refused() -> None:
    task, plan = Sparse(), parse_plan("plan", "sharded=2")
    model = task.model()
    units = units_of(draw(task, task.data()[0], plan, 0.1), without_values(task))
    shards = ShardedModel(model, units, 1, CPU)
    embedding = model.get_submodule("1")
    embedding(torch.tensor([1, 2])).sum().backward()
    with pytest.raises(InvalidArgumentError, match=r"The gradient of 1\.weight is sparse"):
        shards.packed_gradients(1)


def shards_of(task: Task, rank: int) -> ShardedModel:
    blueprint = draw(task, indexed_data(task)[0], parse_plan("plan", "sharded=2"), 0.1)
    return ShardedModel(task.model(), units_of(blueprint, task.model()), rank, CPU)


def mixed() -> nn.Module:
    """A unit with tensors of two types, one between two others."""

    class Mixed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first = nn.Parameter(torch.zeros(3))
            self.second = nn.Parameter(torch.zeros(5, dtype=torch.float64))
            self.third = nn.Parameter(torch.zeros(2))
            self.idle = nn.Parameter(torch.zeros(1))

    return nn.Sequential(Mixed(), nn.Linear(6, 3))


@pytest.mark.parametrize("piece_bytes", [16, 32, 1 << 20])
def test_packed_gradients_are_added_piece_by_piece(piece_bytes: int) -> None:
    """1 + 2 of each value, in any pieces; what only one has counts as it is, what nobody has as nothing."""
    owner = shards_of(task_of(mixed, data=wide), 0)
    packed = []
    for value, missing in ((1.0, "third"), (2.0, "second")):
        model = mixed()
        shards = ShardedModel(model, owner.units, 0, CPU)
        for name, parameter in model.get_submodule("0").named_parameters():
            if name not in (missing, "idle"):
                parameter.grad = torch.full_like(parameter, value)
        packed.append(shards.packed_gradients(0))
    total, came = packed
    for first in range(0, len(total), piece_bytes):
        owner.add(0, first, total[first : first + piece_bytes], came[first : first + piece_bytes])
    owner.take_gradients(0, total)
    found = {
        place.name: parameter.grad
        for place, parameter in zip(owner.units[0].trained, owner._trained(0), strict=True)
    }
    assert found.pop("0.idle") is None
    told = {name: each.tolist() for name, each in found.items() if each is not None}
    assert told == {"0.first": [3.0] * 3, "0.second": [1.0] * 5, "0.third": [2.0] * 2}


def test_a_layer_that_looks_at_another_s_values_hears_why_not() -> None:
    class Looking(nn.Linear):
        def __init__(self, others: nn.Linear) -> None:
            super().__init__(6, 3)
            self.others = [others]  # in a list torch doesn't know of it

        def forward(self, inputs: Tensor) -> Tensor:
            return super().forward(inputs) + self.others[0].weight.sum()

    def model() -> nn.Module:
        first = nn.Linear(6, 6)
        return nn.Sequential(first, Looking(first))

    with pytest.raises(RuntimeError, match="meta"):
        Pipeline(task_of(model), "sharded=2").trainings[1].stage_model.run(torch.ones(1, 6), 1, 2)
