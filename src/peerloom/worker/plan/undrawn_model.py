"""A model whose parameters have no values yet, and those of one stage drawn as its constructor draws all.

A seed gives a parameter's values only after all that are drawn before it. What a constructor fills parameters
with is noted, in order, instead of done: memory that nobody writes to isn't used. Then it is done again: into
a stage's parameters, and of others, one at a time, only what draws, into memory that is free again at once.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

_INIT = "torch.nn.init"
_CHANGES = ("mul_", "add_", "sub_", "div_", "clamp_", "erfinv_")
_SETTLED = ("constant_", "ones_", "zeros_", "fill_", "zero_", *_CHANGES)
_FILLS = ("uniform_", "normal_", *_SETTLED)
_DRAWS = (
    *("rand", "randn", "randint", "randperm", "normal", "bernoulli", "multinomial", "poisson"),
    *("rand_like", "randn_like", "randint_like", "uniform_", "normal_", "random_", "bernoulli_"),
    *("exponential_", "cauchy_", "log_normal_", "geometric_", "dropout", "alpha_dropout"),
)
# What may be asked of a parameter whose values aren't there.
_ASKED = (
    *("size", "dim", "numel", "stride", "element_size", "is_contiguous"),
    *("requires_grad_", "is_floating_point", "is_complex"),
)
_TOLD = (
    *("shape", "ndim", "dtype", "device", "layout", "is_meta", "is_cuda"),
    *("requires_grad", "is_leaf", "grad_fn", "grad"),
)


@dataclass(frozen=True)
class _Fill:
    function: Callable[..., Any]
    parameter: nn.Parameter
    arguments: Sequence[Any]
    options: Mapping[str, Any]

    @property
    def draws(self) -> bool:
        return self.function.__name__ not in _SETTLED

    @property
    def changes(self) -> bool:
        """Whether what was there before matters."""
        return self.function.__name__ in _CHANGES

    def into(self, parameter: Tensor) -> None:
        self.function(parameter, *self.arguments, **self.options)


class Undrawn:
    """The `model` that a constructor gives, with its parameters as their memory was.

    `can_be_drawn` unless the constructor drew numbers for anything else, or looked at what it had filled.
    """

    def __init__(self, construct: Callable[[], nn.Module]) -> None:
        before, watching = torch.get_rng_state(), _Watching()
        with watching:
            self.model = construct()
        self._fills = watching.fills
        # Also a constructor that sets a seed is found by that.
        self.can_be_drawn = watching.is_plain and torch.equal(before, torch.get_rng_state())

    @property
    def is_all_state(self) -> bool:
        """Whether the model's state has all its tensors: no buffer is made by its constructor alone."""
        return not any(module._non_persistent_buffers_set for module in self.model.modules())

    def draw(
        self,
        seed: int,
        names: Collection[str],
        takers: Mapping[int, Callable[[Tensor], object]] = MappingProxyType({}),
    ) -> None:
        """Gives the parameters of these names the values that the constructor gives them with this seed.

        Of those whose `id` is among the `takers` only these are given the values, a whole tensor at a time.
        Needs `can_be_drawn`. The others may be gone from the model by now.
        """
        named = self.model.named_parameters(remove_duplicate=False)
        kept = {id(parameter) for name, parameter in named if name in names}
        last = {id(fill.parameter): number for number, fill in enumerate(self._fills)}
        settled = {id(fill.parameter): n for n, fill in enumerate(self._fills) if not fill.changes}
        values: dict[int, Tensor] = {}
        torch.manual_seed(seed)
        with torch.no_grad():
            for number, fill in enumerate(self._fills):
                key = id(fill.parameter)
                if key in kept:
                    fill.into(fill.parameter)
                elif key in takers and number >= settled.get(key, 0):
                    # What is filled anew later needs no memory until then.
                    fill.into(values.setdefault(key, torch.empty_like(fill.parameter)))
                    if number == last[key]:
                        takers[key](values.pop(key))
                elif fill.draws:
                    fill.into(torch.empty_like(fill.parameter))


class _Watching(TorchFunctionMode):
    """Notes what would fill parameters, and whether anything else happens that their values matter to."""

    def __init__(self) -> None:
        super().__init__()
        self.fills: list[_Fill] = []
        self.is_plain = True

    def __torch_function__(
        self, function: Any, types: Any, arguments: Sequence[Any] = (), given: Mapping[str, Any] | None = None
    ) -> Any:
        options = dict(given or {})
        if not arguments and isinstance(options.get("tensor"), Tensor):  # as the functions of torch.nn.init
            arguments = (options.pop("tensor"),)
        name = getattr(function, "__name__", "")
        others = (*arguments[1:], *options.values())
        if arguments and isinstance(arguments[0], nn.Parameter) and _is_fill(function, name, others):
            self.fills.append(_Fill(function, arguments[0], arguments[1:], options))
            return arguments[0]
        if name in _DRAWS or (_has_parameter((*arguments, *others)) and not _is_question(function, name)):
            self.is_plain = False
        return function(*arguments, **options)


def _is_fill(function: Any, name: str, others: Iterable[Any]) -> bool:
    is_known = name in _FILLS or getattr(function, "__module__", "") == _INIT
    return is_known and not any(isinstance(one, Tensor | torch.Generator) for one in others)


def _is_question(function: Any, name: str) -> bool:
    if name in ("__get__", "__set__"):
        return getattr(getattr(function, "__self__", None), "__name__", "") in _TOLD
    return name in _ASKED


def _has_parameter(values: Iterable[Any]) -> bool:
    for value in values:
        if isinstance(value, nn.Parameter):
            return True
        if isinstance(value, list | tuple) and _has_parameter(value):
            return True
    return False
