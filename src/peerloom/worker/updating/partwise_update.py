"""One step's update, some parameters after the others, each as soon as its gradient is known."""

from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any

import torch
from torch import Tensor, optim
from torch.optim import Optimizer

from peerloom.worker.updating.named_state import NamedOptimiser

# These compute a parameter's next value from its own gradient and moments alone.
_BY_PARAMETER = (
    optim.SGD,
    optim.Adam,
    optim.AdamW,
    optim.NAdam,
    optim.RAdam,
    optim.Adamax,
    optim.Adagrad,
    optim.Adadelta,
    optim.Adafactor,
    optim.RMSprop,
    optim.Rprop,
    optim.ASGD,
)


def why_not_in_parts(optimisers: Iterable[Optimizer]) -> str:
    """Why a step of these can't be made of several for some parameters each; empty where it can."""
    for one in optimisers:
        if type(one) not in _BY_PARAMETER:
            return f"{type(one).__name__} may look at all gradients"
        if one._optimizer_step_pre_hooks or one._optimizer_step_post_hooks:
            return f"hooks of {type(one).__name__} want to hear of whole steps"
    return ""


class SavedValues:
    """What parameters and their moments were, in memory that is used again in each step."""

    def __init__(self) -> None:
        self._memory: dict[tuple[Tensor, str], Tensor] = {}
        self._saved: list[tuple[Optimizer, Tensor, Tensor, dict[str, Any]]] = []

    def save(self, optimiser: Optimizer, parameter: Tensor) -> None:
        """Keeps a parameter and what its optimiser remembers of it."""
        state = optimiser.state.get(parameter, {})
        kept = {
            name: self._copy(parameter, name, value) if isinstance(value, Tensor) else value
            for name, value in state.items()
        }
        self._saved.append((optimiser, parameter, self._copy(parameter, "", parameter), kept))

    @torch.no_grad()
    def put_back(self) -> None:
        """All that is kept is as it was, and isn't kept any more."""
        for optimiser, parameter, value, kept in self._saved:
            parameter.copy_(value)
            state = optimiser.state[parameter]
            for name in state.keys() - kept.keys():
                del state[name]
            for name, before in kept.items():
                if isinstance(before, Tensor):
                    state[name].copy_(before)
                else:
                    state[name] = before
            if not state:
                del optimiser.state[parameter]
        self.forget()

    def forget(self) -> None:
        """Nothing will be put back."""
        self._saved.clear()

    @torch.no_grad()
    def _copy(self, parameter: Tensor, name: str, value: Tensor) -> Tensor:
        memory = self._memory.get((parameter, name))
        if memory is None or memory.shape != value.shape or memory.dtype != value.dtype:
            memory = self._memory[parameter, name] = torch.empty_like(value)
        memory.copy_(value)
        return memory


class PartwiseUpdate:
    """The next parameters of the gradients in `.grad`, made in any order; `undo` puts the old ones back.

    `optimisers` are those that step, and none that `why_not_in_parts` speaks of. `saved` is empty, and has
    what is needed for `undo` until the step is committed.
    """

    def __init__(self, optimisers: Sequence[NamedOptimiser], saved: SavedValues) -> None:
        self._optimisers = optimisers
        self._saved = saved
        self._gradients: dict[Tensor, Tensor] = {}
        for one in optimisers:
            for parameter in one.parameters:
                if parameter.grad is not None:
                    self._gradients[parameter] = parameter.grad
                    parameter.grad = None

    def make(self, parameters: Collection[Tensor]) -> None:
        """Updates these, whose gradients are the sums by now."""
        wanted = set(parameters)
        for each in self._optimisers:
            own = [one for one in each.parameters if one in wanted and one in self._gradients]
            for parameter in own:
                self._saved.save(each.optimiser, parameter)
                parameter.grad = self._gradients.pop(parameter)
            if own:
                each.optimiser.step()
            for parameter in own:
                parameter.grad = None

    def undo(self) -> None:
        """Parameters and moments are as before."""
        self._saved.put_back()

    def commit(self, end_step: Callable[[Sequence[NamedOptimiser]], None]) -> None:
        """The step counts: on with the schedules."""
        self._saved.forget()
        end_step(self._optimisers)
