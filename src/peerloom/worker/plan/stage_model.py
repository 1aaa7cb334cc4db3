"""One worker's stage of a model: its own layers, whose tensors are called as in the whole."""

from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from peerloom.errors import InvalidArgumentError
from peerloom.kit.parallel_plan import ParallelPlan
from peerloom.worker.batches import Nest, form_of
from peerloom.worker.plan.chain import Layer


class StageModel(nn.Module):
    """Layers of `whole`, of whose tensors only those in `names` are here; the others have no memory.

    Its state is that of these `names`. While it evaluates, `evaluated` layers compute: a traced graph knows
    only the mode in which it was traced.
    """

    def __init__(
        self, whole: nn.Module, names: frozenset[str], trained: list[Layer], evaluated: list[Layer]
    ) -> None:
        super().__init__()
        # Not as submodules: what is told of this one would be told of all of `whole`.
        self._parts = (whole, names, [each.module for each in trained], [each.module for each in evaluated])

    @property
    def whole(self) -> nn.Module:
        """The model with all its names."""
        return self._parts[0]

    def forward(self, inputs: Any, begin_layer: Callable[[int], None] = lambda number: None) -> Any:
        """What the layers make of the outputs of the stage before, or of the inputs.

        `begin_layer` hears of each, from 0 in this stage, before it computes.
        """
        return self.run(inputs, 0, len(self._parts[2]), begin_layer)

    def run(
        self, inputs: Any, first: int, end: int, begin_layer: Callable[[int], None] = lambda number: None
    ) -> Any:
        """The same of the layers `first` to before `end` of these."""
        layers = self._parts[2] if self.training else self._parts[3]
        for number in range(first, end):
            begin_layer(number)
            inputs = layers[number](inputs)
        return inputs

    def train(self, mode: bool = True) -> "StageModel":
        """As torch's, for this stage's layers."""
        self.training = mode
        for layer in self._parts[2] if mode else self._parts[3]:
            layer.train(mode)
        return self

    def named_parameters(
        self, prefix: str = "", recurse: bool = True, remove_duplicate: bool = True
    ) -> Iterator[tuple[str, nn.Parameter]]:
        """This stage's, by the names that they have in the whole."""
        for name, parameter in self.whole.named_parameters(prefix, recurse, remove_duplicate):
            if name in self._parts[1]:
                yield name, parameter

    def state_dict(self, *args: Any, **kwargs: Any) -> dict[str, Tensor]:  # type: ignore[override]  # it has all forms
        """This stage's part of the whole's."""
        whole = self.whole.state_dict(*args, **kwargs)
        return {name: tensor for name, tensor in whole.items() if name in self._parts[1]}

    def load_state_dict(
        self, state_dict: Mapping[str, Any], strict: bool = True, assign: bool = False
    ) -> Any:
        """Takes over this stage's part. Raises RuntimeError when a tensor is missing, or is another one."""
        own = self.state_dict().keys()
        if strict and own != state_dict.keys():
            differing = ", ".join(sorted(own ^ state_dict.keys())[:5])
            raise RuntimeError(f"its tensors aren't those of this stage: {differing}")
        told = OrderedDict(state_dict)
        # Without the versions of its parts torch would add what old ones lack, to other stages' layers too.
        told._metadata = self.whole.state_dict()._metadata  # type: ignore[attr-defined]  # it is there
        return self.whole.load_state_dict(told, strict=False, assign=assign)


def check_one_tensor(left: Nest, layer: str, plan: ParallelPlan) -> Tensor:
    """What a layer hands on to another worker. Raises InvalidArgumentError when that is no single tensor."""
    if not isinstance(left, Tensor):
        limit = f"another one: {layer} gives {form_of(left)}, not a single tensor"
        raise InvalidArgumentError.of_field("plan", str(plan), limit)
    return left


def without_memory(model: nn.Module, kept: frozenset[str]) -> None:
    """Puts all tensors of the model but those `kept` on the meta device, in place.

    Buffers that are no part of its state stay, as a constructor filled them.
    """
    for prefix, module in model.named_modules(remove_duplicate=False):
        path = f"{prefix}." if prefix else ""
        for name, parameter in module._parameters.items():
            if parameter is not None and path + name not in kept:
                gone = parameter.detach().to("meta")
                module._parameters[name] = nn.Parameter(gone, parameter.requires_grad)
        for name, buffer in module._buffers.items():
            is_state = name not in module._non_persistent_buffers_set
            if buffer is not None and is_state and path + name not in kept:
                module._buffers[name] = buffer.to("meta")


def moved_layers(layers: list[Layer], device: torch.device) -> None:
    """Brings the layers' tensors to `device`, in place."""
    for layer in layers:
        layer.module.to(device)
