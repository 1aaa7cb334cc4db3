"""A model in shards as one worker has it: its own units, and others' while it computes them.

A borrowed unit's parameters lie over one piece of memory that exists only from `fill` to `release`; in
between modules have tensors without values in their place, so that whoever looks at them gets an error. What
autograd keeps of a forward pass refers to that memory, so it is right again when the same values are filled
in for the backward pass.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from peerloom.worker.plan.shard_units import ShardUnit
from peerloom.worker.plan.tensor_places import check_dense, gradients_in, put_gradients

_NO_SPARSE = "the workers of shards add up dense ones. Train with plan data"


@dataclass
class _Borrowed:
    """A unit of another worker's: the bytes in which its tensors lie, and where these belong.

    `places` are a module's tensors, a name there, and what that names while there are values, and while not.
    """

    content: Tensor
    tensors: dict[str, Tensor] = field(default_factory=dict)
    places: list[tuple[dict[str, Any], str, Tensor, Tensor]] = field(default_factory=list)


class ShardedModel:
    """`whole` with memory for the units of `rank`; those of others are put in here.

    Until `release_all` their tensors stand in their places, though without memory, for whoever wants to know
    which are whose.
    """

    def __init__(self, whole: nn.Module, units: Sequence[ShardUnit], rank: int, device: torch.device) -> None:
        self.units, self.rank = tuple(units), rank
        self._whole, self._device = whole, device
        self._borrowed: dict[int, _Borrowed] = {}
        for number, unit in enumerate(self.units):
            if unit.owner != rank and unit.values:
                self._borrowed[number] = borrowed = self._put(unit)
                borrowed.content.untyped_storage().resize_(0)

    @property
    def borrowed_bytes(self) -> int:
        """What others' units take here now, without gradients."""
        return sum(each.content.untyped_storage().nbytes() for each in self._borrowed.values())

    def release_all(self) -> None:
        """No values of others are here."""
        for number in self._borrowed:
            self.release(number)

    def packed(self, number: int) -> Tensor:
        """A copy of an own unit's values, uint8 [value_bytes], on the processor."""
        unit = self.units[number]
        content = torch.zeros(unit.value_bytes, dtype=torch.uint8)
        for place in unit.values:
            tensors, name = self._where(place.name)
            place.of(content).copy_(tensors[name].detach())
        return content

    def fill(self, number: int, content: Tensor) -> None:
        """Gives a borrowed unit its values, as `packed` gave them."""
        borrowed = self._borrowed[number]
        borrowed.content.untyped_storage().resize_(borrowed.content.nbytes)
        borrowed.content.data.copy_(content)  # by `data`, as for autograd nothing changes
        for tensors, name, tensor, _ in borrowed.places:
            tensors[name] = tensor

    def release(self, number: int) -> None:
        """Gives a borrowed unit's memory back, gradients too; of an own one nothing."""
        if (borrowed := self._borrowed.get(number)) is not None:
            for parameter in self._trained(number):
                parameter.grad = None
            for tensors, name, _, absent in borrowed.places:
                tensors[name] = absent
            borrowed.content.untyped_storage().resize_(0)

    def packed_gradients(self, number: int) -> Tensor:
        """Takes the gradients of a unit away: uint8 [gradient_bytes], on the processor.

        Raises InvalidArgumentError for a sparse one.
        """
        unit = self.units[number]
        content = torch.zeros(unit.gradient_bytes, dtype=torch.uint8)
        parameters = self._trained(number)
        for place, parameter in zip(unit.trained, parameters, strict=True):
            check_dense(place.name, parameter.grad, _NO_SPARSE, "SPARSE_IN_SHARDS")
        put_gradients(content, unit.trained, [parameter.grad for parameter in parameters])
        for parameter in parameters:
            parameter.grad = None
        return content

    def add(self, number: int, first: int, piece: Tensor, came: Tensor) -> None:
        """Adds what others packed to a `piece` of a unit's packed gradients, from byte `first`, in place."""
        unit, end = self.units[number], first + piece.numel()
        flags = len(unit.trained) - first
        if flags > 0:
            piece[:flags].bitwise_or_(came[:flags])
        for dtype, region_first, region_end in unit.regions:
            begin, stop = max(region_first, first) - first, min(region_end, end) - first
            if begin < stop:
                piece[begin:stop].view(dtype).add_(came[begin:stop].view(dtype))

    def take_gradients(self, number: int, content: Tensor) -> None:
        """Gives an own unit the gradients that `content` has; one that nobody has is None."""
        gradients = gradients_in(content, self.units[number].trained)
        for parameter, gradient in zip(self._trained(number), gradients, strict=True):
            parameter.grad = None if gradient is None else gradient.to(self._device)

    def _trained(self, number: int) -> list[Tensor]:
        borrowed, places = self._borrowed.get(number), self.units[number].trained
        if borrowed is not None:
            return [borrowed.tensors[place.name] for place in places]
        return [self._whole.get_parameter(place.name) for place in places]

    def _where(self, name: str) -> tuple[dict[str, Any], str]:
        """Which tensors of a module one of the whole's state is among, and its name there."""
        path, _, own_name = name.rpartition(".")
        module = self._whole.get_submodule(path)
        return (module._parameters if own_name in module._parameters else module._buffers), own_name

    def _put(self, unit: ShardUnit) -> _Borrowed:
        content = torch.empty(unit.value_bytes, dtype=torch.uint8, device=self._device)
        borrowed, trained = _Borrowed(content), {place.name for place in unit.trained}
        for place in unit.values:
            for name in unit.names[place.name]:
                tensors, own_name = self._where(name)
                if place.name not in borrowed.tensors:
                    is_parameter = isinstance(tensors[own_name], nn.Parameter)
                    tensor = place.of(content)
                    made = nn.Parameter(tensor, place.name in trained) if is_parameter else tensor
                    borrowed.tensors[place.name] = made
                tensor, absent = borrowed.tensors[place.name], tensors[own_name]
                tensors[own_name] = tensor
                borrowed.places.append((tensors, own_name, tensor, absent))
        return borrowed
