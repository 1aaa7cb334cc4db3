"""What a model's layers cost wherever they are: work, parameters, and the bytes of their activations."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from peerloom.errors import InvalidArgumentError, nearest

MOST_PLANNED_LAYERS = 1000
BACKWARD_RATIO = 2.0  # a backward pass computes two products for each of the forward pass


@dataclass(frozen=True)
class ModelLayer:
    """A layer that no stage boundary cuts.

    `forward_s` and `backward_s` are seconds for a sample on a slot of speed 1. `output_bytes` of activations
    go to the next layer for a sample, and as many of gradients come back; `kept_bytes` are held for a sample
    from its forward to its backward pass. One that `is_narrow` can't be in a stage whose workers take turns,
    nor in a shard; one that `is_tied` has several layers with tensors in common, and can't be in a shard.
    Raises InvalidArgumentError.
    """

    name: str
    parameters: int
    forward_s: float
    backward_s: float
    output_bytes: float
    kept_bytes: float
    is_narrow: bool = False
    is_tied: bool = False

    def __post_init__(self) -> None:
        for field in ("parameters", "forward_s", "backward_s", "output_bytes", "kept_bytes"):
            if not 0 <= getattr(self, field) < math.inf:
                raise InvalidArgumentError.of_field(
                    f"{field} of layer {self.name}", getattr(self, field), "at least 0"
                )


_KEYS = tuple(field.name for field in fields(ModelLayer))
_TEXT, _FLAGS = "name", ("is_narrow", "is_tied")
_OPERATIONS = ("forward_operations", "backward_operations")


def layers_of_document(document: Any, operations_per_s: float) -> tuple[ModelLayer, ...]:
    """Layers from a JSON list of objects with ModelLayer's fields.

    In place of seconds there may be `forward_operations` and `backward_operations`, of which a slot of speed
    1 makes `operations_per_s`. Left out, a backward pass takes twice the forward one, and what is kept is
    the output. Raises InvalidArgumentError, naming the layer and the key.
    """
    check_operations(operations_per_s)
    if not isinstance(document, list) or not document:
        raise InvalidArgumentError("The layers must be a JSON list of objects, one for each layer.")
    return tuple(_layer(number, entry, operations_per_s) for number, entry in enumerate(document))


def check_operations(operations_per_s: float) -> None:
    """Raises InvalidArgumentError unless a slot makes any operations."""
    if not 0 < operations_per_s < math.inf:
        raise InvalidArgumentError.of_field("operations a second", operations_per_s, "above 0")


def _layer(number: int, entry: Any, operations_per_s: float) -> ModelLayer:
    if not isinstance(entry, Mapping):
        raise InvalidArgumentError(f"Layer {number} is {entry!r}, but must be an object such as {_EXAMPLE}.")
    known = (*_KEYS, *_OPERATIONS)
    for key, value in entry.items():
        if key not in known:
            near = nearest(key, known)
            hint = f" Did you mean {near[0]}?" if near else f" There are {', '.join(known)}."
            raise InvalidArgumentError(f"Layer {number} has the unknown key {key!r}.{hint}")
        if key in _FLAGS and not isinstance(value, bool):
            raise InvalidArgumentError.of_field(f"{key} of layer {number}", value, "true or false")
        if key not in (_TEXT, *_FLAGS) and (isinstance(value, bool) or not isinstance(value, int | float)):
            raise InvalidArgumentError.of_field(f"{key} of layer {number}", value, "a number")
    forward_s = _seconds(number, entry, "forward", operations_per_s)
    if forward_s is None:
        raise InvalidArgumentError(f"Layer {number} has neither forward_s nor forward_operations.")
    backward_s = _seconds(number, entry, "backward", operations_per_s)
    output_bytes = entry.get("output_bytes", 0)
    return ModelLayer(
        name=str(entry.get(_TEXT, number)),
        parameters=_whole(number, entry.get("parameters", 0)),
        forward_s=forward_s,
        backward_s=BACKWARD_RATIO * forward_s if backward_s is None else backward_s,
        output_bytes=output_bytes,
        kept_bytes=entry.get("kept_bytes", output_bytes),
        is_narrow=entry.get("is_narrow", False),
        is_tied=entry.get("is_tied", False),
    )


_EXAMPLE = '{"name": "first", "parameters": 4096, "forward_s": 0.001, "output_bytes": 256}'


def _whole(number: int, value: float) -> int:
    if value != int(value):
        raise InvalidArgumentError.of_field(f"parameters of layer {number}", value, "a whole number")
    return int(value)


def _seconds(number: int, entry: Mapping[str, Any], which: str, operations_per_s: float) -> float | None:
    seconds, operations = entry.get(f"{which}_s"), entry.get(f"{which}_operations")
    if seconds is not None and operations is not None:
        raise InvalidArgumentError(
            f"Layer {number} has both {which}_s and {which}_operations; leave one out."
        )
    if operations is not None:
        return float(operations) / operations_per_s
    return None if seconds is None else float(seconds)
