"""The units of a model in shards: layers whose values travel together from the worker that holds them."""

from bisect import bisect
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from peerloom.errors import InvalidArgumentError
from peerloom.worker.plan.balancing import ends_of, unit_starts
from peerloom.worker.plan.blueprint import PipelineBlueprint
from peerloom.worker.plan.tensor_places import TensorPlace, aligned


@dataclass(frozen=True)
class ShardUnit:
    """Layers `first` to before `end`, held by a rank, the `owner`.

    `values` are where its parameters and buffers lie on their way, by the first name of each; `names` are all
    names of each, since one tensor may have several. `trained` are where its gradients lie, those of one type
    together, after a byte for each that says whether there is one.
    """

    owner: int
    first: int
    end: int
    values: tuple[TensorPlace, ...]
    trained: tuple[TensorPlace, ...]
    names: dict[str, tuple[str, ...]]

    @property
    def value_bytes(self) -> int:
        """What its values take on their way; 0: it has none."""
        return self.values[-1].end if self.values else 0

    @property
    def regions(self) -> list[tuple[torch.dtype, int, int]]:
        """Each type of its gradients, and from where to where these lie."""
        found: dict[torch.dtype, tuple[int, int]] = {}
        for place in self.trained:
            found[place.dtype] = found.get(place.dtype, (place.offset, 0))[0], place.end
        return [(dtype, first, end) for dtype, (first, end) in found.items()]

    @property
    def gradient_bytes(self) -> int:
        """What its gradients take on their way; 0: nothing in it is trained."""
        return self.trained[-1].end if self.trained else 0


def units_of(blueprint: PipelineBlueprint, model: nn.Module) -> tuple[ShardUnit, ...]:
    """The units of a model as a plan cuts it; of `model`, which may be without memory, only forms count.

    What has nothing to train goes with what it follows, and no unit reaches over the begin of a shard. Raises
    InvalidArgumentError for a tensor that two units would share.
    """
    layers = len(blueprint.layers)
    starts = sorted({*unit_starts(blueprint.layers), *blueprint.starts})
    found: list[dict[str, tuple[Tensor, tuple[str, ...]]]] = [{} for _ in starts]
    for names, tensor in _named_tensors(model):
        units = sorted({bisect(starts, layer) - 1 for layer in blueprint.places[names[0]]})
        if len(units) > 1:
            first, second = (blueprint.layers[starts[unit]].name for unit in units[:2])
            limit = (
                f"another one: {names[0]} belongs to layers {first} and {second}, whose values travel one "
                "after the other. Use data, or a pipeline whose stages keep them together"
            )
            raise InvalidArgumentError.of_field("plan", str(blueprint.plan), limit)
        found[units[0]][names[0]] = tensor, names
    ends = ends_of(starts, layers)
    return tuple(
        _unit(bisect(blueprint.starts, first) - 1, first, end, tensors)
        for first, end, tensors in zip(starts, ends, found, strict=True)
    )


def _unit(owner: int, first: int, end: int, tensors: dict[str, tuple[Tensor, tuple[str, ...]]]) -> ShardUnit:
    of_type: dict[torch.dtype, dict[str, Tensor]] = {}
    for name, (tensor, _) in tensors.items():
        if tensor.requires_grad:
            of_type.setdefault(tensor.dtype, {})[name] = tensor
    trained = {name: tensor for alike in of_type.values() for name, tensor in alike.items()}
    return ShardUnit(
        owner,
        first,
        end,
        tuple(_placed({name: tensor for name, (tensor, _) in tensors.items()}, 0)),
        tuple(_placed(trained, aligned(len(trained)))),
        {name: names for name, (_, names) in tensors.items()},
    )


def _named_tensors(model: nn.Module) -> Iterator[tuple[tuple[str, ...], Tensor]]:
    """Each tensor of the model's state, with all its names."""
    state = model.state_dict(keep_vars=True)
    names: dict[int, list[str]] = {}
    for name, tensor in state.items():
        names.setdefault(id(tensor), []).append(name)
    for found in names.values():
        yield tuple(found), state[found[0]]


def _placed(tensors: dict[str, Tensor], offset: int) -> Iterator[TensorPlace]:
    for name, tensor in tensors.items():
        place = TensorPlace(name, tensor.shape, tensor.dtype, offset)
        yield place
        offset = place.end
