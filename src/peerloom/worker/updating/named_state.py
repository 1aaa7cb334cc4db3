"""The state of optimisers and their schedules as plain JSON and tensors, by the names of the parameters."""

import copy
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from peerloom.errors import InvalidArgumentError

_PREFIX = "optimiser."


class NamedOptimiser:
    """An optimiser whose state is told by the names of its parameters in `model`.

    Raises InvalidArgumentError for a parameter that isn't the model's: nobody would send it to a newcomer.
    """

    def __init__(self, optimiser: Optimizer, model: nn.Module) -> None:
        self.optimiser = optimiser
        self.parameters = [each for group in optimiser.param_groups for each in group["params"]]
        known = {parameter: name for name, parameter in model.named_parameters()}
        for number, parameter in enumerate(self.parameters):
            if parameter not in known:
                found = f"parameter {number}, {list(parameter.shape)}, which isn't the model's"
                limit = "an optimiser of the given parameters"
                raise InvalidArgumentError.of_field("optimiser()", found, limit)
        self.names = [known[parameter] for parameter in self.parameters]

    @property
    def rests(self) -> bool:
        """Whether no backward pass has reached its parameters; never where it has none, as in a stage."""
        return bool(self.parameters) and all(parameter.grad is None for parameter in self.parameters)

    def flatten(self) -> tuple[dict[str, Any], dict[str, Tensor]]:
        """What is plain, as JSON keeps it exactly, and the tensors, called optimiser.PARAMETER.KEY."""
        found, names = self.optimiser.state_dict(), self.names
        tensors: dict[str, Tensor] = {}
        plain: dict[str, dict[str, Any]] = {}
        for index, entries in found["state"].items():
            name = names[index]
            tensors |= {f"{_PREFIX}{name}.{key}": v for key, v in entries.items() if isinstance(v, Tensor)}
            plain[name] = {key: value for key, value in entries.items() if not isinstance(value, Tensor)}
        groups = [
            {**group, "params": [names[index] for index in group["params"]]}
            for group in found["param_groups"]
        ]
        return {"state": plain, "groups": groups}, tensors

    def unflatten(
        self,
        state: Mapping[str, Mapping[str, Any]],
        groups: Sequence[Mapping[str, Any]],
        tensors: Mapping[str, Tensor],
    ) -> dict[str, Any]:
        """What the optimiser's load_state_dict takes, of what `flatten` gave; other names are passed over.

        Raises KeyError or ValueError for groups of other parameters.
        """
        indices = {name: index for index, name in enumerate(self.names)}
        found = parted(state, tensors)
        known = {indices[name]: entries for name, entries in found.items() if name in indices}
        told = [{**group, "params": [indices[name] for name in group["params"]]} for group in groups]
        own = self.optimiser.state_dict()["param_groups"]
        if [group["params"] for group in told] != [group["params"] for group in own]:
            raise ValueError("its optimiser has other groups of parameters")
        return {"state": known, "param_groups": _as_own(own, told)}


def check_apart(optimisers: Sequence[NamedOptimiser]) -> None:
    """Raises InvalidArgumentError for a parameter that two of them would move."""
    names = Counter(name for each in optimisers for name in each.names)
    if twice := [name for name, count in names.items() if count > 1]:
        limit = "optimisers that share no parameter"
        raise InvalidArgumentError.of_field("optimisers", f"two with {twice[0]}", limit)


def check_known(optimisers: Sequence[NamedOptimiser], state: Mapping[str, Any]) -> None:
    """Raises KeyError for a `state` that has a parameter of none of them."""
    names = {name for each in optimisers for name in each.names}
    if unknown := [name for name in state if name not in names]:
        raise KeyError(unknown[0])


def parted(
    state: Mapping[str, Mapping[str, Any]], tensors: Mapping[str, Tensor]
) -> dict[str, dict[str, Any]]:
    """The state and the tensors of `flatten` together: what is kept of each parameter, by name."""
    whole = {name: dict(entries) for name, entries in state.items()}
    for path, tensor in tensors.items():
        if path.startswith(_PREFIX):
            name, _, key = path.removeprefix(_PREFIX).rpartition(".")
            whole.setdefault(name, {})[key] = tensor
    return whole


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
