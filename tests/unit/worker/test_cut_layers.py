"""Which layers are cut in pieces, along what, and how a tensor is whole again. Nothing is exchanged."""

import weakref
from collections.abc import Callable

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from stages_in_threads import Waves, task_of, training_of
from test_undrawn_model import PLAIN
from torch import Tensor, nn

from peerloom.errors import InvalidArgumentError
from peerloom.kit.parallel_plan import parse_plan
from peerloom.worker.plan.blueprint import indexed_data
from peerloom.worker.plan.cut_layers import DividedLinears, cut_layers, cuts_by_name
from peerloom.worker.plan.piece_links import ExchangePace
from peerloom.worker.plan.piece_survey import Exchanged, exchange_s, survey_pieces
from peerloom.worker.plan.tensor_cuts import TensorCut
from peerloom.worker.plan.undrawn_model import Undrawn
from peerloom.worker.tasks.text import Transformer


def test_each_piece_has_some_heads_of_queries_keys_and_values() -> None:
    """Three heads of two numbers in two pieces: the first has two heads, in each of the three sections."""
    cut = TensorCut((18, 4), 0, pieces=2, units=3, sections=3)
    whole = torch.arange(18).unsqueeze(1).expand(18, 4)
    first, second = (cut.piece(whole, number) for number in range(2))
    assert first[:, 0].tolist() == [0, 1, 2, 3, 6, 7, 8, 9, 12, 13, 14, 15]
    assert second[:, 0].tolist() == [4, 5, 10, 11, 16, 17]
    assert cut.piece_shape(1) == (6, 4)
    assert torch.equal(cut.whole([first, second]), whole)


@given(st.integers(2, 5), st.integers(0, 5), st.integers(1, 3), st.integers(1, 3), st.integers(0, 1))
def test_pieces_of_any_cut_are_the_whole_again(
    pieces: int, more: int, length: int, sections: int, dim: int
) -> None:
    units = pieces + more
    shape = [3, 3]
    shape[dim] = units * length * sections
    cut = TensorCut(tuple(shape), dim, pieces, units, sections)
    whole = torch.randperm(shape[0] * shape[1]).view(*shape)
    parts = [cut.piece(whole, number) for number in range(pieces)]
    assert [tuple(part.shape) for part in parts] == [cut.piece_shape(number) for number in range(pieces)]
    assert torch.equal(cut.whole(parts), whole)
    lengths = [cut.length(number) for number in range(pieces)]
    assert max(lengths) - min(lengths) <= length * sections, "as equal as whole units allow"


class Gated(nn.Module):
    """Two layers whose product a third takes, and one whose outputs are needed besides."""

    def __init__(self) -> None:
        super().__init__()
        self.gate, self.up, self.down = nn.Linear(6, 8), nn.Linear(6, 8), nn.Linear(8, 6)
        self.seen, self.last = nn.Linear(6, 8), nn.Linear(8, 6)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.down(torch.relu(self.gate(x)) * self.up(x))
        seen = self.seen(x)
        return torch.cat([self.last(seen.relu()), seen], -1)


def dropped(rate: float) -> nn.Module:
    return nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Dropout(rate), nn.Linear(8, 4))


def tied(**more: float) -> nn.Module:
    """An embedding and a linear layer that have one tensor."""
    model = nn.Sequential(nn.Embedding(9, 6, **more), nn.Linear(6, 9, bias=False))
    model[1].weight = model[0].weight
    return model


class Twice(nn.Module):
    """One linear layer under two names."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(6, 6)
        self.second = self.first

    def forward(self, x: Tensor) -> Tensor:
        again: Tensor = self.second(self.first(x).relu())
        return again


class Alone(nn.Linear):
    """A class of the user's, which may compute anything."""


@pytest.mark.parametrize(
    ("model", "dims"),
    [
        (Gated, {"gate": 0, "up": 0, "down": 1, "seen": 0, "last": 0}),
        (lambda: dropped(0.0), {"0": 0, "3": 1}),
        (lambda: dropped(0.1), {"0": 0, "3": 0}),
        (Twice, {"first": 0, "second": 0}),
        (lambda: nn.Sequential(Alone(6, 6), nn.Linear(6, 2)), {"1": 0}),
        (lambda: nn.Sequential(nn.Conv2d(4, 6, 3), nn.Conv2d(6, 6, 3, groups=2)), {"0": 0}),
        (lambda: nn.Sequential(nn.Embedding(9, 6), nn.Embedding(9, 6, max_norm=1.0)), {"0": 1}),
        (lambda: tied(), {"0": 0, "1": 0}),
        (lambda: tied(max_norm=1.0), {}),
        (lambda: nn.TransformerEncoderLayer(6, 2, 8), {"linear1": 0, "linear2": 0}),
        (
            lambda: nn.TransformerEncoderLayer(6, 2, 8, dropout=0.0),
            {"linear1": 0, "linear2": 1, "self_attn.out_proj": 1},
        ),
    ],
)
def test_what_is_cut_along_which_dimension(model: Callable[[], nn.Module], dims: dict[str, int]) -> None:
    made = model()
    found = cuts_by_name(made, cut_layers(made, 2))
    weights = {
        name.removesuffix(".weight"): cut.dim for name, cut in found.items() if name.endswith(".weight")
    }
    assert weights == dims


def test_what_a_module_says_is_divided_together_is() -> None:
    """Of three heads in two pieces; with four pieces there are too few, and each layer is cut by itself."""
    model = Transformer(8, 12, 1, 3)
    cuts = cuts_by_name(model, cut_layers(model, 2))
    block = "blocks.0."
    assert (cuts[f"{block}projections.weight"].sections, cuts[f"{block}projections.weight"].units) == (3, 3)
    assert cuts[f"{block}mixing.weight"].dim == 1
    assert f"{block}mixing.bias" not in cuts, "it is added once"
    four = cuts_by_name(model, cut_layers(model, 4))
    assert four[f"{block}projections.weight"].sections == 1
    assert four[f"{block}mixing.weight"].dim == 0


def test_exchanges_take_their_delay_and_their_bytes() -> None:
    """Two layers, 3 exchanges a micro-batch of 600 bytes a sample; a batch of 5 in two parts."""
    exchanged = (Exchanged(2, 400), Exchanged(1, 200))
    pace = ExchangePace(delay_s=0.01, byte_s=1e-5)
    assert exchange_s(exchanged, [3, 2], pace) == pytest.approx(2 * 3 * 0.01 + 5 * 600e-5)


def test_what_layers_exchange_is_found_without_computing() -> None:
    """The first layer stays apart, the second adds 12 numbers up; the last joins 3, and spreads 12."""
    task = Waves()
    plan = parse_plan("plan", "tensor=2")
    exchanged = survey_pieces(task, indexed_data(task)[0], plan).exchanged
    # Two of the last 3 come to who has the smaller piece.
    assert [each.count for each in exchanged] == [0, 0, 1, 0, 0, 2]
    assert [each.sample_bytes for each in exchanged] == [0, 0, 4 * 12, 0, 0, 4 * 12 + 4 * 2]


class Minds(nn.Module):
    """Code that knows how many numbers come out of its first layer."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(6, 8), nn.Linear(8, 3)

    def divided_linears(self) -> list[DividedLinears]:
        return [DividedLinears({"first": 1}, "last")]

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.last(self.first(x).view(len(x), 2, 4).flatten(1))
        return y


@pytest.mark.parametrize(
    ("model", "said"),
    [
        (Minds, "doesn't compute with its layers in 2 pieces: RuntimeError"),
        (lambda: nn.Sequential(Alone(6, 3)), "no layer of Modelled's model can be cut in 2"),
    ],
)
def test_a_model_that_can_not_be_cut_is_refused_with_the_reason(
    model: Callable[[], nn.Module], said: str
) -> None:
    with pytest.raises(InvalidArgumentError, match=said):
        training_of(task_of(model), "tensor=2")


@pytest.mark.parametrize("construct", PLAIN)
def test_who_takes_pieces_gets_the_values_of_the_whole_one_at_a_time(
    construct: Callable[[], nn.Module],
) -> None:
    torch.manual_seed(5)
    whole = {name: each.detach() for name, each in construct().named_parameters()}
    undrawn = Undrawn(construct)
    names = {id(each): name for name, each in undrawn.model.named_parameters()}
    found: dict[str, Tensor] = {}
    alive: list[weakref.ref[Tensor]] = []

    def take(name: str, values: Tensor) -> None:
        assert not any(other() is not None for other in alive), "no other is held by now"
        alive.append(weakref.ref(values))
        found[name] = values.clone()

    undrawn.draw(5, (), {key: lambda v, name=name: take(name, v) for key, name in names.items()})
    assert found.keys() == whole.keys()
    assert all(torch.equal(found[name], values) for name, values in whole.items())
