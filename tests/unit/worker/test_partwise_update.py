"""A step's update, some parameters after others: the same bits as at once, and undone as if it never was."""

import json
from collections.abc import Callable, Iterable
from typing import Any

import pytest
import torch
from torch import Tensor, nn, optim

from peerloom.worker.updating.partwise_update import PartwiseUpdate, SavedValues, why_not_in_parts
from peerloom.worker.updating.precision import GradientScaler
from peerloom.worker.updating.updater import Updater

Made = Callable[[Iterable[nn.Parameter]], optim.Optimizer]
MADE: dict[str, Made] = {
    "sgd": lambda own: optim.SGD(own, lr=0.1),
    "momentum": lambda own: optim.SGD(own, lr=0.1, momentum=0.9, nesterov=True, weight_decay=0.01),
    "adam": lambda own: optim.Adam(own, lr=0.1, amsgrad=True),
    "adamw": lambda own: optim.AdamW(own, lr=0.1),
    "nadam": lambda own: optim.NAdam(own, lr=0.1),
    "radam": lambda own: optim.RAdam(own, lr=0.1),
    "adamax": lambda own: optim.Adamax(own, lr=0.1),
    "adagrad": lambda own: optim.Adagrad(own, lr=0.1),
    "adadelta": lambda own: optim.Adadelta(own, lr=0.1),
    "adafactor": lambda own: optim.Adafactor(own, lr=0.1),
    "rmsprop": lambda own: optim.RMSprop(own, lr=0.1, momentum=0.5, centered=True),
    "rprop": lambda own: optim.Rprop(own, lr=0.1),
    "asgd": lambda own: optim.ASGD(own, lr=0.1),
}


def new_model() -> nn.Module:
    torch.manual_seed(2)
    return nn.Sequential(nn.Linear(3, 5), nn.Tanh(), nn.Linear(5, 2))


def new_updater(model: nn.Module, made: Made) -> Updater:
    optimiser = made(model.parameters())
    return Updater(model, [optimiser], [optim.lr_scheduler.LinearLR(optimiser, 1.0, 0.1, 5)])


def give_gradients(model: nn.Module, step: int) -> None:
    chance = torch.Generator().manual_seed(step)
    for parameter in model.parameters():
        parameter.grad = torch.randn(parameter.shape, generator=chance)


def step_in_parts(updater: Updater, model: nn.Module, saved: SavedValues, parts: int = 3) -> PartwiseUpdate:
    """All parameters but the last of `parts`, in another order than theirs."""
    update = PartwiseUpdate(updater.stepping, saved)
    parameters = list(model.parameters())
    for part in reversed(range(parts)):
        update.make(parameters[part::parts])
    return update


def bits(updater: Updater, model: nn.Module) -> dict[str, Tensor | str]:
    plain, tensors = updater.state()
    named = {name: tensor.detach().clone() for name, tensor in model.named_parameters()}
    return {
        **named,
        **{name: tensor.clone() for name, tensor in tensors.items()},
        "plain": json.dumps(plain, sort_keys=True),
    }


def check_same(one: dict[str, Tensor | str], other: dict[str, Tensor | str]) -> None:
    assert one.keys() == other.keys()
    for name, value in one.items():
        also = other[name]
        if isinstance(value, Tensor) and isinstance(also, Tensor):
            assert torch.equal(value, also), name
        else:
            assert value == also, name


@pytest.mark.parametrize("kind", MADE)
def test_parts_make_the_same_bits_as_one_step(kind: str) -> None:
    whole, parted = new_model(), new_model()
    at_once, in_parts = new_updater(whole, MADE[kind]), new_updater(parted, MADE[kind])
    saved = SavedValues()
    for step in range(4):
        give_gradients(whole, step)
        at_once.step()
        give_gradients(parted, step)
        step_in_parts(in_parts, parted, saved).commit(in_parts.end_step)
        check_same(bits(at_once, whole), bits(in_parts, parted))
        assert all(parameter.grad is None for parameter in parted.parameters())


@pytest.mark.parametrize("steps_before", [0, 1, 3])
@pytest.mark.parametrize("kind", MADE)
def test_an_undone_step_never_was(kind: str, steps_before: int) -> None:
    """Also the first one, before which there are no moments; the next one is as without it."""
    model, undisturbed = new_model(), new_model()
    updater, other = new_updater(model, MADE[kind]), new_updater(undisturbed, MADE[kind])
    saved = SavedValues()
    for step in range(steps_before):
        for each, own in ((updater, model), (other, undisturbed)):
            give_gradients(own, step)
            each.step()
    before = bits(updater, model)
    give_gradients(model, 100)
    step_in_parts(updater, model, saved).undo()
    check_same(bits(updater, model), before)
    give_gradients(model, steps_before)
    step_in_parts(updater, model, saved).commit(updater.end_step)
    give_gradients(undisturbed, steps_before)
    other.step()
    check_same(bits(updater, model), bits(other, undisturbed))


def test_what_was_not_reached_yet_is_left_alone_by_undoing_too() -> None:
    model = new_model()
    updater, saved = new_updater(model, MADE["adam"]), SavedValues()
    before = bits(updater, model)
    give_gradients(model, 1)
    update = PartwiseUpdate(updater.stepping, saved)
    update.make(list(model.parameters())[:2])
    first = before["0.weight"]
    assert isinstance(first, Tensor)
    assert not torch.equal(next(model.parameters()), first)
    update.undo()
    check_same(bits(updater, model), before)


def test_a_frozen_or_resting_parameter_stays() -> None:
    """One without a gradient, and one that no optimiser has."""
    model = new_model()
    first, *_, last = model.parameters()
    updater, saved = Updater(model, [optim.SGD(list(model.parameters())[:3], lr=0.1)]), SavedValues()
    give_gradients(model, 1)
    first.grad = None
    before = first.clone(), last.clone()
    update = PartwiseUpdate(updater.stepping, saved)
    update.make(list(model.parameters()))
    update.commit(updater.end_step)
    assert torch.equal(first, before[0])
    assert torch.equal(last, before[1])
    assert last.grad is None, "it would add up"


def test_whoever_looks_at_all_gradients_says_so() -> None:
    model = new_model()

    def of(optimiser: optim.Optimizer, **more: Any) -> str:
        return Updater(model, [optimiser], **more).why_whole

    sgd = optim.SGD(model.parameters(), lr=0.1)
    assert of(sgd) == ""
    assert "clipped" in of(sgd, clip_norm=1.0)
    assert "fp16" in of(sgd, scaler=GradientScaler(torch.device("cpu")))
    assert "metric" in of(sgd, schedulers=[optim.lr_scheduler.ReduceLROnPlateau(sgd)])
    assert "LBFGS" in of(optim.LBFGS(model.parameters()))

    class Own(optim.SGD):
        pass

    assert "Own" in why_not_in_parts([sgd, Own(model.parameters())])
    sgd.register_step_post_hook(lambda *_: None)
    assert "hooks" in of(sgd)
