"""Aim: a pipeline trains what one worker trains, and its files are those of any plan.

Method: the stages are threads joined by queues, beside the same training in one piece.
"""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from stages_in_threads import CPU, Pipeline, QueueLinks, Waves, in_one_piece, spec_of
from torch import Tensor, nn

from peerloom.errors import DataLossError
from peerloom.kit.plan_model.pipeline_order import PIPELINE_ORDERS
from peerloom.kit.safetensors_file import check_parameters
from peerloom.worker.plan.pipeline_training import PipelineTraining
from peerloom.worker.plan.stage_files import write_checkpoint, write_model
from peerloom.worker.plan.stage_loop import evaluate_stage
from peerloom.worker.plan.stage_step import make_step
from peerloom.worker.training import Training

STEPS = 52  # 13 epochs of three batches of 20 and one of 10


def steps(count: int) -> Callable[[PipelineTraining, QueueLinks], list[float]]:
    def make(training: PipelineTraining, links: QueueLinks) -> list[float]:
        return [make_step(training, links, lambda: None).loss for _ in range(count)]

    return make


def check_equal(found: dict[str, Tensor], expected: dict[str, Tensor]) -> None:
    assert found.keys() == expected.keys()
    for name, tensor in expected.items():
        assert torch.allclose(found[name], tensor, rtol=0, atol=1e-5), name


@pytest.mark.parametrize(
    "plan",
    [
        "pipeline=2",
        "pipeline=4,micro_batches=3",
        "pipeline=2:,micro_batches=1",
        "pipeline=3,micro_batches=50",
        "pipeline=3,micro_batches=5,order=gpipe",
        "pipeline=3,micro_batches=5,order=zb-h1",
        "pipeline=4,micro_batches=3,order=zb-h2",
        "pipeline=2,widths=2/1",
        "pipeline=2,widths=1/2,micro_batches=5",
        "pipeline=3,widths=1/3/2,micro_batches=4,order=gpipe",
        "pipeline=2,widths=4/3,micro_batches=4",
        "pipeline=3,widths=1/3/2,micro_batches=6,order=zb-h1",
        "sharded=2",
        "sharded=4",
        "sharded=1:3",
    ],
)
def test_a_divided_model_trains_what_one_worker_trains(plan: str) -> None:
    """With a clipped norm over all stages, a schedule, and micro-batches of 7, 7 and 6 samples, or of one."""
    expected, losses = in_one_piece(Waves(), STEPS)
    pipeline = Pipeline(Waves(), plan)
    told = pipeline.work(steps(STEPS))
    assert all(each == told[0] for each in told), "all stages hear the same losses"
    assert torch.allclose(torch.tensor(told[0]), torch.tensor(losses), rtol=0, atol=1e-5)
    check_equal(pipeline.parameters(), expected.state.model.state_dict())
    rates = {training.state.updater.learning_rate for training in pipeline.trainings}
    assert rates == {expected.state.updater.learning_rate}


def test_the_order_of_passes_changes_no_bit() -> None:
    found = []
    for order in PIPELINE_ORDERS:
        pipeline = Pipeline(Waves(), f"pipeline=3,micro_batches=6,order={order}")
        pipeline.work(steps(8))
        found.append(pipeline.parameters())
    for other in found[1:]:
        assert all(torch.equal(tensor, other[name]) for name, tensor in found[0].items())


def test_stages_by_unequal_shares_train_the_same() -> None:
    expected, losses = in_one_piece(Waves(), 8)
    pipeline = Pipeline(Waves(), "pipeline=2", shares=[20, 1])
    assert pipeline.trainings[1].blueprint.bounds(1) == (5, 6), "evenly it would begin at 2"
    told = pipeline.work(steps(8))
    assert torch.allclose(torch.tensor(told[0]), torch.tensor(losses), rtol=0, atol=1e-5)
    check_equal(pipeline.parameters(), expected.state.model.state_dict())


class Wide(Waves):
    """Activations of 512 values a sample, which are worth a codec."""

    epochs, learning_rate = 5, 0.001

    def model(self) -> nn.Module:
        return nn.Sequential(nn.Linear(6, 512), nn.Tanh(), nn.Linear(512, 512), nn.Tanh(), nn.Linear(512, 3))


@pytest.mark.parametrize("codec", ["bf16", "int8"])
def test_with_shorter_activations_a_pipeline_trains_nearly_the_same(codec: str) -> None:
    """A value of bf16 is off by 1/256 of itself at most, one of int8 by 1/254 of its block's largest."""
    exact = Pipeline(Wide(), "pipeline=3").work(steps(20))[0]
    coded = Pipeline(Wide(), f"pipeline=3,activations={codec}").work(steps(20))[0]
    assert coded != exact
    assert torch.allclose(torch.tensor(coded), torch.tensor(exact), rtol=0.02)


def test_a_stage_holds_its_own_parameters_and_moments_only() -> None:
    pipeline = Pipeline(Waves(), "pipeline=2")
    pipeline.work(steps(1))
    for stage, training in enumerate(pipeline.trainings):
        own = training.blueprint.names(stage)
        whole = training.stage_model.whole
        assert {name for name, each in whole.named_parameters() if not each.is_meta} == own
        moments = {name.rpartition(".")[0] for name in training.state.updater.state()[1]}
        assert moments == {f"optimiser.{name}" for name in own}
    assert sum(len(each.blueprint.names(n)) for n, each in enumerate(pipeline.trainings)) == 8


@pytest.mark.parametrize("plan", ["pipeline=3", "sharded=3", "tensor=3"])
def test_the_test_set_goes_through_all_stages(plan: str) -> None:
    expected, _ = in_one_piece(Waves(), 4)
    with torch.no_grad():
        inputs, targets = expected.test.inputs, expected.test.targets  # type: ignore[attr-defined]
        accuracy = float((expected.state.model(inputs).argmax(1) == targets).float().mean())
    pipeline = Pipeline(Waves(), plan)
    pipeline.work(steps(4))
    told = pipeline.work(lambda training, links: evaluate_stage(training, links))
    assert [round(each.metric, 6) for each in told] == [round(accuracy, 6)] * 3
    assert told[0].epoch == 1
    assert told[0].loss == pytest.approx(expected.state.epoch_loss_sum / 70, abs=1e-5)


def kept(pipeline: Pipeline, folder: Path, writer: int = 0) -> Path:
    """A checkpoint of the pipeline."""
    path = folder / "checkpoint.safetensors"
    pipeline.work(lambda training, links: write_checkpoint(training, links, path, writer))
    return path


@pytest.mark.parametrize("plan", ["pipeline=2", "pipeline=4", "sharded=2", "tensor=2", "pipeline=2,tensor=2"])
def test_a_checkpoint_goes_on_under_any_plan(plan: str, tmp_path: Path) -> None:
    """Three stages, then one worker, then another number of stages: as one worker all the way."""
    expected, _ = in_one_piece(Waves(), 30)
    first = Pipeline(Waves(), "pipeline=3")
    first.work(steps(10))
    alone = Training(Waves(), spec_of(Waves()), CPU)
    alone.state.from_bytes(kept(first, tmp_path).read_bytes())
    assert alone.state.step == 10
    in_one_piece(Waves(), 10, alone)
    path = tmp_path / "of-one.safetensors"
    path.write_bytes(alone.state.to_bytes())
    last = Pipeline(Waves(), plan, path)
    assert {training.state.step for training in last.trainings} == {20}
    last.work(steps(10))
    check_equal(last.parameters(), expected.state.model.state_dict())


@pytest.mark.parametrize("plan", ["pipeline=3", "sharded=3", "tensor=3"])
def test_a_checkpoint_holds_what_that_of_one_worker_holds(plan: str, tmp_path: Path) -> None:
    """After no step at all the two are equal to the last bit."""
    pipeline = Pipeline(Waves(), plan)
    alone = Training(Waves(), spec_of(Waves()), CPU)
    for writer in range(3):
        assert kept(pipeline, tmp_path, writer).read_bytes() == alone.state.to_bytes()


def test_all_hear_what_one_wants_and_who_stays() -> None:
    def make(training: PipelineTraining, links: QueueLinks) -> tuple[bool, bool, int]:
        done = make_step(training, links, lambda: None, leaves=links.rank == 2, departs=links.rank != 1)
        return done.keeps, done.leaves, done.stays

    assert Pipeline(Waves(), "pipeline=3").work(make) == [(False, True, 1)] * 3


def test_the_model_is_the_whole_and_its_digest_that_of_its_file(tmp_path: Path) -> None:
    pipeline, path = Pipeline(Waves(), "pipeline=3"), tmp_path / "model.safetensors"
    pipeline.work(steps(2))
    spec = spec_of(Waves(), "pipeline=3")
    digests = set(pipeline.work(lambda training, links: write_model(training, links, spec, path)))
    assert len(digests) == 1
    check_parameters(path, digests.pop())
    alone = Training(Waves(), spec_of(Waves()), CPU)
    alone.state.load_model(path.read_bytes())
    check_equal(pipeline.parameters(), alone.state.model.state_dict())


def test_what_is_no_checkpoint_of_the_model_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "state.safetensors"
    path.write_bytes(b"nothing")
    with pytest.raises(DataLossError, match="it isn't a state of this model"):
        Pipeline(Waves(), "pipeline=2", path)
