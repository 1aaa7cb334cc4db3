"""The state of an optimiser and its schedule as plain JSON and tensors, by the names of the parameters."""

import copy
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim.lr_scheduler import LRScheduler

from peerloom.errors import InvalidArgumentError

_PREFIX = "optimiser."


def names_of(optimiser: torch.optim.Optimizer, model: nn.Module) -> list[str]:
    """The names of the optimiser's parameters, in its own order.

    Raises InvalidArgumentError for one that isn't the model's: nobody would send it to a newcomer.
    """
    known = {parameter: name for name, parameter in model.named_parameters()}
    chosen = [parameter for group in optimiser.param_groups for parameter in group["params"]]
    for number, parameter in enumerate(chosen):
        if parameter not in known:
            found = f"parameter {number}, {list(parameter.shape)}, which isn't the model's"
            raise InvalidArgumentError.of_field("optimiser()", found, "an optimiser of the given parameters")
    return [known[parameter] for parameter in chosen]


def flatten(
    optimiser: torch.optim.Optimizer, names: Sequence[str]
) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """What is plain, as JSON keeps it exactly, and the tensors, called optimiser.PARAMETER.KEY."""
    found = optimiser.state_dict()
    tensors: dict[str, Tensor] = {}
    plain: dict[str, dict[str, Any]] = {}
    for index, entries in found["state"].items():
        name = names[index]
        tensors |= {f"{_PREFIX}{name}.{key}": v for key, v in entries.items() if isinstance(v, Tensor)}
        plain[name] = {key: value for key, value in entries.items() if not isinstance(value, Tensor)}
    groups = [
        {**group, "params": [names[index] for index in group["params"]]} for group in found["param_groups"]
    ]
    return {"state": plain, "groups": groups}, tensors


def unflatten(
    optimiser: torch.optim.Optimizer,
    names: Sequence[str],
    described: Mapping[str, Any],
    tensors: Mapping[str, Tensor],
) -> dict[str, Any]:
    """What the optimiser's load_state_dict takes, of what `flatten` gave.

    Raises KeyError or ValueError for one of other parameters, or of others in its groups.
    """
    indices = {name: index for index, name in enumerate(names)}
    state = {indices[name]: entries for name, entries in parted(described, tensors).items()}
    groups = [
        {**group, "params": [indices[name] for name in group["params"]]} for group in described["groups"]
    ]
    own = optimiser.state_dict()["param_groups"]
    if [group["params"] for group in groups] != [group["params"] for group in own]:
        raise ValueError("its optimiser has other groups of parameters")
    return {"state": state, "param_groups": _as_own(own, groups)}


def parted(described: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> dict[str, dict[str, Any]]:
    """What `flatten` gave, put together: for each parameter's name what the optimiser keeps of it."""
    state: dict[str, dict[str, Any]] = {name: dict(entries) for name, entries in described["state"].items()}
    for path, tensor in tensors.items():
        if path.startswith(_PREFIX):
            name, _, key = path.removeprefix(_PREFIX).rpartition(".")
            state.setdefault(name, {})[key] = tensor
    return state


def load_schedule(scheduler: LRScheduler, told: Mapping[str, Any]) -> None:
    """Takes over the state of another worker's scheduler, which JSON has made plain."""
    scheduler.load_state_dict(_as_own(scheduler.state_dict(), told))


def _as_own(own: Any, told: Any) -> Any:
    """`told` with the types of this worker's own value: JSON knows no tuples, counters or keys but text."""
    if isinstance(own, dict) and isinstance(told, Mapping):
        keys = {str(key): key for key in own}
        made = copy.copy(own)
        made.clear()
        for name, value in told.items():
            key = keys.get(name, name)
            made[key] = _as_own(own.get(key), value)
        return made
    if isinstance(own, list | tuple) and isinstance(told, list):
        is_like = len(own) == len(told)
        return type(own)(map(_as_own, own, told)) if is_like else type(own)(told)
    return told
