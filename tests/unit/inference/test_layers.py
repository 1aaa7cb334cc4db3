"""A model as a chain of layers: the chain computes what the model does, and residual blocks stay whole."""

import pytest
import torch
from torch import Tensor, nn

from peerloom.inference.server.layers import run_layers
from peerloom.worker.plan.chain import Layer, layers_of
from peerloom.worker.task import load_task


class Residual(nn.Module):
    """Two places where one tensor is all that goes on: after the sum, and after the product."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.last = nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 2)
        self.scale = nn.Parameter(torch.full((4,), 0.5))

    def forward(self, x: Tensor) -> Tensor:
        y = torch.relu(self.first(x)) + x
        z: Tensor = self.last(self.second(y) * self.scale)
        return z


class Branching(nn.Module):
    """What it computes depends on its input: no graph can be traced."""

    def forward(self, x: Tensor) -> Tensor:
        return x + 1 if x.sum() > 0 else x


def test_members_of_nested_sequences_are_the_layers() -> None:
    model = nn.Sequential(nn.Linear(2, 3), nn.Sequential(nn.ReLU(), nn.Linear(3, 1)))
    layers = layers_of(model)
    assert [layer.name for layer in layers] == ["0", "1.0", "1.1"]
    assert [layer.parameter_bytes for layer in layers] == [36, 0, 16]


def test_a_member_that_is_there_twice_computes_twice() -> None:
    twice = nn.Linear(3, 3)
    model = nn.Sequential(twice, nn.ReLU(), twice)
    layers = layers_of(model)
    assert [layer.name for layer in layers] == ["0", "1", "2"]
    inputs = torch.rand(2, 3)
    assert torch.equal(run_layers(layers, inputs), model(inputs))


def test_a_traced_model_is_cut_where_one_tensor_goes_on() -> None:
    torch.manual_seed(0)
    model, inputs = Residual(), torch.randn(3, 4)
    layers = layers_of(model)
    assert [layer.name for layer in layers] == ["add", "second", "mul", "last"]
    assert torch.equal(run_layers(layers, inputs), model(inputs))
    middle = run_layers(layers[:2], inputs)
    assert torch.equal(run_layers(layers[2:], middle), model(inputs))
    assert sum(layer.parameter_bytes for layer in layers) == sum(4 * p.numel() for p in model.parameters())


def test_what_cannot_be_traced_is_one_layer() -> None:
    model = Branching()
    assert layers_of(model) == [Layer("model", model)]


@pytest.mark.parametrize("pieces", [[12], [5] + [1] * 7, [1] * 12])
def test_a_sequence_continued_in_pieces_gives_what_it_gives_at_once(pieces: list[int]) -> None:
    """The keys and values that blocks keep stand for the tokens seen."""
    torch.manual_seed(1)
    model = load_task("text", {"width": "16", "depth": "2", "heads": "2", "context": "12"}).model().eval()
    tokens = torch.randint(0, 256, (1, 12))
    layers, caches, start = layers_of(model), {}, 0
    for length in pieces:
        logits = run_layers(layers, tokens[:, start : start + length], caches)
        start += length
        assert torch.allclose(logits, model(tokens[:, :start])[:, -1], atol=1e-5)


def test_a_model_that_names_its_logits_answers_with_them() -> None:
    class Naming(Branching):
        def forward(self, x: Tensor) -> dict[str, Tensor]:  # type: ignore[override]  # as transformers do
            return {"hidden": x, "logits": super().forward(x)}

    assert run_layers(layers_of(Naming()), torch.ones(1, 2)).tolist() == [[2.0, 2.0]]
