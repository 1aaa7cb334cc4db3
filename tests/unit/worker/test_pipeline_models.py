"""Which models and optimisers a pipeline takes, and why it refuses others. Stages are threads."""

from collections.abc import Iterable

import pytest
import torch
from stages_in_threads import Pipeline, QueueLinks, Waves, in_one_piece, training_of
from torch import Tensor, nn
from torch.nn import functional

from peerloom.errors import InvalidArgumentError
from peerloom.worker.plan.pipeline_training import PipelineTraining
from peerloom.worker.plan.stage_loop import evaluate_stage
from peerloom.worker.plan.stage_step import make_step
from peerloom.worker.plan.task_layers import is_narrow_layer, task_layers
from peerloom.worker.task import Split


class Residual(nn.Module):
    """Two blocks, added to what came in, with chance that is off while it evaluates; registered backwards."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(6, 3)
        self.second = nn.Linear(6, 6)
        self.first = nn.Linear(6, 6)

    def forward(self, x: Tensor) -> Tensor:
        x = x + torch.tanh(self.first(x))
        x = functional.dropout(x, 0.5, self.training)
        x = x + torch.tanh(self.second(x))
        logits: Tensor = self.head(x)
        return logits


class Tied(nn.Module):
    """Its last layer uses the first one's weights."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(6, 6), nn.Linear(6, 6)
        self.last.weight = self.first.weight

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.last(torch.relu(self.first(x)))
        return logits


class Deciding(nn.Module):
    """What it computes depends on values, which no graph can tell."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(6, 6), nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.last(self.first(x) if x.sum() > 0 else x)
        return logits


class Reversed(nn.Sequential):
    """A Sequential that calls its members in another way."""

    def forward(self, x: Tensor) -> Tensor:
        for member in reversed(self):
            x = member(x)
        return x


class With(Waves):
    """Waves with another model."""

    def __init__(self, made: type[nn.Module]) -> None:
        self._made = made

    def model(self) -> nn.Module:
        return self._made()


def refusal(task: Waves, plan: str = "pipeline=2") -> str:
    with pytest.raises(InvalidArgumentError) as refused:
        training_of(task, plan).enter(0)
    return refused.value.message


def test_a_traced_model_trains_and_evaluates_in_its_own_mode() -> None:
    """Its parameters lie in another order than its layers; with dropout no training is repeated elsewhere."""
    pipeline = Pipeline(With(Residual), "pipeline=3")
    names = [sorted(each.blueprint.names(stage)) for stage, each in enumerate(pipeline.trainings)]
    assert names == [[f"{name}.bias", f"{name}.weight"] for name in ("first", "second", "head")]
    losses = pipeline.work(lambda training, links: make_step(training, links, lambda: None).loss)
    told = pipeline.work(lambda training, links: evaluate_stage(training, links).metric)
    whole = Residual().eval()
    whole.load_state_dict(pipeline.parameters())
    test = pipeline.trainings[0].test
    assert isinstance(test, Split)
    right = float((whole(test.inputs).argmax(1) == test.targets).float().mean())
    assert told == pytest.approx([right] * 3)
    assert len(set(losses)) == 1


def test_a_model_without_chance_in_a_traced_graph_trains_as_in_one_piece() -> None:
    class Calm(Residual):
        def forward(self, x: Tensor) -> Tensor:
            x = x + torch.tanh(self.first(x))
            logits: Tensor = self.head(x + torch.tanh(self.second(x)))
            return logits

    expected, _ = in_one_piece(With(Calm), 8)
    pipeline = Pipeline(With(Calm), "pipeline=2")
    pipeline.work(lambda training, links: [make_step(training, links, lambda: None) for _ in range(8)])
    for name, tensor in expected.state.model.state_dict().items():
        assert torch.allclose(pipeline.parameters()[name], tensor, rtol=0, atol=1e-5), name


def test_what_can_not_be_traced_is_named() -> None:
    said = refusal(With(Deciding))
    assert "the model can't be cut (torch.fx can't trace Deciding: TraceError" in said
    assert "control flow" in said


def test_a_sequential_of_the_users_own_is_not_taken_for_the_usual_one() -> None:
    def reversed_layers() -> nn.Module:
        return Reversed(nn.Linear(6, 3), nn.Tanh(), nn.Linear(6, 6))

    task = With(reversed_layers)  # type: ignore[arg-type]  # it makes one
    pipeline = Pipeline(task, "pipeline=2")
    first = pipeline.trainings[0].blueprint
    assert first.owners["2.weight"] == 0, "the last member computes first"


def test_parameters_that_two_stages_share_are_named() -> None:
    said = refusal(With(Tied))
    assert "first.weight belongs to stages 0 and 1, and workers can't share a tensor" in said


def test_more_stages_than_layers_with_parameters_are_refused() -> None:
    assert "at most pipeline=4: 4 of the model's" in refusal(Waves(), "pipeline=6")


def test_inputs_of_several_tensors_are_refused() -> None:
    class Pairs(Waves):
        def data(self) -> tuple[Split, Split]:
            train, test = super().data()
            return Split((train.inputs, train.inputs), train.targets), test

    assert "gives inputs ([1, 6], [1, 6]), and a pipeline takes one tensor" in refusal(Pairs())


def test_gradients_with_a_scale_are_refused() -> None:
    class Scaled(Waves):
        autocast = "fp16"

    assert "Use 'bf16', or train with plan data" in refusal(Scaled())


def test_an_optimiser_that_divides_a_stage_otherwise_is_refused() -> None:
    class Halved(Waves):
        def optimiser(
            self, parameters: Iterable[nn.Parameter], learning_rate: float
        ) -> torch.optim.Optimizer:
            every = list(parameters)
            half = len(every) // 2
            return torch.optim.SGD([{"params": every[:half]}, {"params": every[half:]}], lr=learning_rate)

    assert "divides a stage's parameters into other groups" in refusal(Halved())


def test_groups_by_what_a_parameter_is_are_those_of_the_whole() -> None:
    class Decaying(Waves):
        def optimiser(
            self, parameters: Iterable[nn.Parameter], learning_rate: float
        ) -> torch.optim.Optimizer:
            every = list(parameters)
            decayed = {"params": [each for each in every if each.dim() > 1], "weight_decay": 0.1}
            return torch.optim.AdamW(
                [decayed, {"params": [each for each in every if each.dim() < 2]}], lr=learning_rate
            )

    expected, _ = in_one_piece(Decaying(), 6)
    pipeline = Pipeline(Decaying(), "pipeline=4")

    def make(training: PipelineTraining, links: QueueLinks) -> None:
        for _ in range(6):
            make_step(training, links, lambda: None)

    pipeline.work(make)
    for name, tensor in expected.state.model.state_dict().items():
        assert torch.allclose(pipeline.parameters()[name], tensor, rtol=0, atol=1e-5), name


def test_batch_normalisation_sees_micro_batches_of_two_or_more() -> None:
    def normalised() -> nn.Module:
        return nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.Linear(8, 3))

    pipeline = Pipeline(With(normalised), "pipeline=2,micro_batches=64")  # type: ignore[arg-type]  # as above
    assert {training.least_samples for training in pipeline.trainings} == {2}
    losses = pipeline.work(lambda training, links: make_step(training, links, lambda: None).loss)
    assert len(set(losses)) == 1
    assert int(pipeline.parameters()["1.num_batches_tracked"]) == 10


def test_what_layers_cost_is_told_for_a_search() -> None:
    """Of one sample of 6 values: a layer of 16 makes 2 * 6 * 16 operations, and keeps its input for them."""
    found = task_layers(Waves())
    assert [(one["name"], one["parameters"], one["forward_operations"]) for one in found] == [
        ("0", 112, 192),
        ("1", 0, 0),
        ("2.0", 204, 384),
        ("2.1", 0, 0),
        ("2.2", 24, 0),
        ("3", 39, 72),
    ]
    assert (found[0]["output_bytes"], found[0]["kept_bytes"]) == (64, 24)
    assert found[1]["kept_bytes"] == 64, "the result of tanh"
    assert not any(one["is_narrow"] for one in found)


def test_layers_with_tensors_in_common_are_told() -> None:
    class Tied(Waves):
        def model(self) -> nn.Module:
            first, third = nn.Linear(6, 6), nn.Linear(6, 6)
            third.weight = first.weight
            return nn.Sequential(first, nn.Tanh(), third, nn.Linear(6, 3))

    assert [one["name"] for one in task_layers(Tied()) if one["is_tied"]] == ["0", "2"]


def test_layers_whose_workers_could_not_take_turns_are_told() -> None:
    """Batch normalisation has buffers that each pass changes; sparse gradients are not added up."""

    def model() -> nn.Module:
        normed = nn.Sequential(nn.Linear(6, 6), nn.BatchNorm1d(6))
        return nn.Sequential(nn.Linear(6, 6), normed, nn.LayerNorm(6), nn.Linear(6, 3))

    class Normed(Waves):
        def model(self) -> nn.Module:
            return model()

    assert [one["name"] for one in task_layers(Normed()) if one["is_narrow"]] == ["1.1"]
    assert not any(one["is_tied"] for one in task_layers(Normed()))
    assert is_narrow_layer(nn.Embedding(4, 4, sparse=True))
    assert not is_narrow_layer(nn.Embedding(4, 4))
