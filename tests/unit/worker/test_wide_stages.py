"""Aim: the workers of one stage share its work, keep one state to the last bit, and replace each other.

Method: they are threads joined by queues, beside the same training in one piece.
"""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from stages_in_threads import Lines, Pipeline, QueueLinks, Sparse, Waves, in_one_piece, spec_of, training_of
from torch import Tensor, nn

from peerloom.errors import InvalidArgumentError
from peerloom.kit.shadow_ring import shadow_holders
from peerloom.services.trainer.generations.stage_states import GoOn, newest_states
from peerloom.worker.plan.pipeline_training import PipelineTraining
from peerloom.worker.plan.shadowing import Shadowing
from peerloom.worker.plan.stage_files import write_checkpoint, write_model
from peerloom.worker.plan.stage_loop import evaluate_stage
from peerloom.worker.plan.stage_step import make_step
from peerloom.worker.plan.stage_sum import add_up, buffers_of, check_buffers
from peerloom.worker.plan.state_transfer import take_over

PLAN = "pipeline=2,widths=2/1,micro_batches=5"
Work = Callable[[PipelineTraining, QueueLinks], None]


def states(pipeline: Pipeline) -> list[dict[str, Tensor]]:
    return [
        {name: tensor.clone() for name, tensor in each.state.tensors().items()} for each in pipeline.trainings
    ]


def check_same(found: dict[str, Tensor], expected: dict[str, Tensor]) -> None:
    assert found.keys() == expected.keys()
    for name, tensor in expected.items():
        assert torch.equal(found[name], tensor), name


def trained(count: int, sources: tuple[int, ...] = (), step: int = 0) -> Work:
    """So many steps as a generation makes them, after the states of a `step` were given."""
    plan = training_of(Waves(), PLAN).plan
    nodes = [f"node-{rank}" for rank in range(plan.ranks.workers)]
    states, changes = Lines(len(nodes)), Lines(len(nodes))
    holders = shadow_holders(nodes, plan.ranks)

    def work(training: PipelineTraining, links: QueueLinks) -> None:
        ways = QueueLinks(states, links.rank)
        if sources:
            take_over(training, ways, sources, step)
            training.state.reopen_epoch(training.schedule.steps_per_epoch)
        training.begin_past()
        shadowing = Shadowing(training, links, ways, QueueLinks(changes, links.rank), holders, nodes)
        for _ in range(count):
            make_step(training, links, lambda: None, shadowing=shadowing)
        shadowing.settle()
        shadowing.close()
        assert shadowing.is_on

    return work


def test_the_workers_of_a_stage_have_the_same_state_to_the_last_bit() -> None:
    """The last batch of an epoch has 10 samples for 12 micro-batches: two have no turn then."""
    pipeline = Pipeline(Waves(), "pipeline=2,widths=1/12,micro_batches=12")
    pipeline.work(lambda training, links: [make_step(training, links, lambda: None) for _ in range(5)])
    _, first, *others = states(pipeline)
    for other in others:
        check_same(other, first)


def test_the_model_is_cut_by_the_number_of_workers() -> None:
    """The layers cost 304, 0, 588, 0, 24 and 111: a fifth of 892 at layer 4 is less than of 916 at 5."""
    cuts = [
        Pipeline(Waves(), f"pipeline=2{widths}").trainings[0].blueprint.starts
        for widths in ("", ",widths=5/1", ",widths=1/5")
    ]
    assert cuts == [(0, 2), (0, 4), (0, 2)]


@pytest.mark.parametrize("lost", [0, 1, 2])
def test_a_lost_worker_goes_on_from_its_companion_or_its_shadow(lost: int) -> None:
    expected = Pipeline(Waves(), PLAN)
    expected.work(trained(12))
    pipeline = Pipeline(Waves(), PLAN)
    pipeline.work(trained(7))
    ranks = pipeline.trainings[0].plan.ranks
    new = training_of(Waves(), PLAN)
    new.enter(ranks.stage_of(lost), starts=pipeline.trainings[0].blueprint.starts)
    pipeline.trainings[lost] = new
    found = newest_states(
        [{(one.stage, one.step) for one in each.held()} for each in pipeline.trainings], ranks
    )
    assert isinstance(found, GoOn)
    assert found.step == 7
    assert found.sources[lost] == {0: 1, 1: 0, 2: 0}[lost]
    for rank, training in enumerate(pipeline.trainings):
        if rank != lost:
            training.stay(found.step)
    pipeline.work(trained(5, found.sources, found.step))
    for one, other in zip(states(pipeline), states(expected), strict=True):
        check_same(one, other)


@pytest.mark.parametrize("writer", [0, 1, 2])
def test_a_checkpoint_is_that_of_any_plan_whoever_writes_it(writer: int, tmp_path: Path) -> None:
    expected, _ = in_one_piece(Waves(), 12)
    first, path = Pipeline(Waves(), PLAN), tmp_path / "checkpoint.safetensors"
    first.work(lambda training, links: [make_step(training, links, lambda: None) for _ in range(6)])
    first.work(lambda training, links: write_checkpoint(training, links, path, writer))
    last = Pipeline(Waves(), "pipeline=3,widths=1/2/2", path)
    last.work(lambda training, links: [make_step(training, links, lambda: None) for _ in range(6)])
    for name, tensor in expected.state.model.state_dict().items():
        assert torch.allclose(last.parameters()[name], tensor, rtol=0, atol=1e-5), name


def test_the_model_and_the_metric_are_those_of_all_stages(tmp_path: Path) -> None:
    narrow, wide = Pipeline(Waves(), "pipeline=2"), Pipeline(Waves(), "pipeline=2:,widths=3/2")
    spec = spec_of(Waves())
    told = [
        each.work(
            lambda training, links: (
                evaluate_stage(training, links).metric,
                write_model(training, links, spec, tmp_path / "model.safetensors"),
            )
        )
        for each in (narrow, wide)
    ]
    assert told == [[told[0][0]] * 2, [told[0][0]] * 5]


class Normalised(Waves):
    """Its running figures move with each forward pass of the first stage."""

    def model(self) -> nn.Module:
        return nn.Sequential(nn.Linear(6, 16), nn.BatchNorm1d(16), nn.Tanh(), nn.Linear(16, 3))


def test_buffers_that_passes_change_are_refused() -> None:
    training = Pipeline(Normalised(), "pipeline=3:,widths=2/1").trainings[0]
    before = buffers_of(training.stage_model)
    training.stage_model.eval()(torch.rand(4, 6))
    check_buffers(before, training.stage_model, "the plan")
    training.stage_model.train()(torch.rand(4, 6))
    with pytest.raises(InvalidArgumentError, match=r"a pipeline with one worker for 1\.running_mean"):
        check_buffers(before, training.stage_model, "the plan")


def test_a_sparse_gradient_is_refused_with_words() -> None:
    training = training_of(Sparse(), "pipeline=1:,widths=1/2")
    training.enter(1)
    training.stage_model(torch.tensor([1, 2])).sum().backward()
    with pytest.raises(InvalidArgumentError, match="widths of 1 in the plan"):
        add_up(training.stage_model, QueueLinks(Lines(3), 1), range(1, 3))


def test_who_has_no_gradient_takes_the_sum_of_the_others() -> None:
    """Of the weights ranks 1 and 2 have gradients of their rank each, and of the biases nobody has one."""

    def added(training: PipelineTraining, links: QueueLinks) -> list[Tensor | None]:
        model = training.stage_model
        first, second = model.parameters()
        if links.rank:
            first.grad = torch.full_like(first, float(links.rank))
        add_up(model, links, range(3))
        assert second.grad is None
        return [first.grad]

    pipeline = Pipeline(Waves(), "pipeline=1:,widths=3/1")
    pipeline.trainings.pop()
    for (grad,) in pipeline.work(added):
        assert grad is not None
        assert grad.tolist() == [[3.0] * 6] * 16
