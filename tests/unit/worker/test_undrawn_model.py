"""A stage's parameters, drawn without the others, are those of the whole model with the same seed."""

import weakref
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from stages_in_threads import training_of
from torch import Tensor, nn

from peerloom.worker.plan.stage_model import without_memory
from peerloom.worker.plan.undrawn_model import Undrawn
from peerloom.worker.tasks.emulated import Emulated

SEED = 5


class Scaled(nn.Module):
    """Fills of its own, one after the other, as constructors of language models do."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(40, 8)
        self.places = nn.Parameter(torch.zeros(6, 8))
        self.blocks = nn.ModuleList(nn.Linear(8, 8, bias=False) for _ in range(3))
        self.norm = nn.LayerNorm(8)
        nn.init.xavier_uniform_(self.places)
        for block in self.blocks:
            nn.init.normal_(block.weight, std=0.02)
            with torch.no_grad():
                block.weight.mul_(0.5)
        self.register_buffer("mask", torch.ones(6, 6).tril(), persistent=False)


def convolutions() -> nn.Module:
    return nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.Flatten(), nn.Linear(16, 5))


def attention() -> nn.Module:
    return nn.Sequential(nn.Linear(8, 8), nn.TransformerEncoderLayer(8, 2, 16), nn.Linear(8, 3))


def recurrent() -> nn.Module:
    return nn.GRU(4, 6, num_layers=2)


PLAIN = (Scaled, convolutions, attention, recurrent)


@pytest.mark.parametrize("construct", PLAIN)
def test_each_parameter_drawn_by_itself_is_that_of_the_whole(construct: Callable[[], nn.Module]) -> None:
    torch.manual_seed(SEED)
    whole = construct().state_dict()
    for name in whole:
        torch.manual_seed(SEED + 1)
        undrawn = Undrawn(construct)
        assert undrawn.can_be_drawn
        without_memory(undrawn.model, frozenset([name]))
        undrawn.draw(SEED, {name})
        assert torch.equal(undrawn.model.state_dict()[name], whole[name]), name


def test_buffers_are_as_the_constructor_made_them() -> None:
    assert torch.equal(Undrawn(Scaled).model.get_buffer("mask"), torch.ones(6, 6).tril())
    assert not Undrawn(Scaled).is_all_state
    assert Undrawn(convolutions).is_all_state


def with_rows_of_zeros() -> nn.Module:
    return nn.Embedding(9, 3, padding_idx=0)


def truncated() -> nn.Module:
    """What lies outside is drawn again: how much is drawn depends on the values."""
    layer = nn.Linear(8, 8)
    nn.init.trunc_normal_(layer.weight, a=-1.0, b=1.0)
    return layer


def copied() -> nn.Module:
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    return nn.TransformerEncoder(layer, 2)


class Drawn(nn.Linear):
    """Numbers that are no parameter's come between those of two."""

    def __init__(self) -> None:
        super().__init__(3, 3)
        self.register_buffer("noise", torch.rand(3))


class Tied(nn.Module):
    """One parameter begins as another's half."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.other = nn.Linear(3, 3), nn.Linear(3, 3)
        with torch.no_grad():
            self.other.weight.copy_(self.one.weight / 2)


class Wrapped(nn.Module):
    """A parameter made of drawn numbers."""

    def __init__(self) -> None:
        super().__init__()
        self.weight: Tensor = nn.Parameter(torch.randn(3))


class Seeded(nn.Linear):
    """It draws with a seed of its own."""

    def __init__(self) -> None:
        torch.manual_seed(1)
        super().__init__(3, 3)


@pytest.mark.parametrize("construct", [with_rows_of_zeros, truncated, copied, Drawn, Tied, Wrapped, Seeded])
def test_a_constructor_that_needs_values_is_seen(construct: Callable[[], nn.Module]) -> None:
    torch.manual_seed(SEED)
    assert not Undrawn(construct).can_be_drawn


def test_others_parameters_take_no_memory_while_a_stage_is_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """None of the others' is held when the next is drawn."""
    undrawn, held = Undrawn(convolutions), list[int]()
    without_memory(undrawn.model, frozenset(["0.weight"]))
    make = torch.empty_like
    alive: list[weakref.ref[Tensor]] = []

    def noting(tensor: Tensor) -> Tensor:
        made = make(tensor)
        held.append(sum(one() is not None for one in alive))
        alive.append(weakref.ref(made))
        return made

    monkeypatch.setattr(torch, "empty_like", noting)
    undrawn.draw(SEED, {"0.weight"})
    assert held == [0] * 3


def resident_bytes(line: str) -> int:
    """What /proc says of this process: VmRSS now, VmHWM the most since that was cleared."""
    for each in Path("/proc/self/status").read_text().splitlines():
        if each.startswith(f"{line}:"):
            return int(each.split()[1]) * 1024
    raise AssertionError(f"no {line}")


def test_a_worker_never_holds_the_whole_model() -> None:
    """100 MB in 20 layers, of which it has 5."""
    task = Emulated(parameters="25000000", layers="20", samples="8")
    training = training_of(task, "pipeline=4")
    Path("/proc/self/clear_refs").write_text("5")  # the most begins anew
    before = resident_bytes("VmRSS")
    training.enter(1)
    assert sum(each.numel() for each in training.stage_model.parameters()) * 4 > 24_000_000
    assert resident_bytes("VmHWM") - before < 60_000_000
