"""Any state_dict as plain JSON and tensors by name, so that what users register travels without pickle."""

from collections.abc import Mapping
from typing import Any

from torch import Tensor

_TENSOR, _LIST, _TUPLE, _MAPPING = "tensor", "list", "tuple", "mapping"


def taken_to_pieces(value: Any, name: str, tensors: dict[str, Tensor]) -> Any:
    """The value as JSON keeps it exactly; its tensors are put into `tensors`, named below `name`.

    Raises TypeError, naming the place, for what is no number, text, bool, None, tensor, list, tuple, or
    mapping with text for keys.
    """
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, Tensor):
        unique = f"{name}.{len(tensors)}"  # keys may have dots of their own
        tensors[unique] = value
        return {_TENSOR: unique}
    if isinstance(value, list | tuple):
        parts = [taken_to_pieces(one, f"{name}.{i}", tensors) for i, one in enumerate(value)]
        return {_LIST if isinstance(value, list) else _TUPLE: parts}
    if isinstance(value, Mapping) and all(isinstance(key, str) for key in value):
        entries = {key: taken_to_pieces(one, f"{name}.{key}", tensors) for key, one in value.items()}
        return {_MAPPING: entries}
    raise TypeError(
        f"{name} is a {type(value).__name__}" + (" with other keys than text" * isinstance(value, Mapping))
    )


def put_together(plain: Any, tensors: Mapping[str, Tensor]) -> Any:
    """The value that `taken_to_pieces` took. Raises KeyError or ValueError for what it didn't make."""
    if not isinstance(plain, dict):
        return plain
    (kind, content), *others = plain.items()
    if others:
        raise ValueError("it isn't a registered state")
    if kind == _TENSOR:
        return tensors[content]
    if kind == _MAPPING:
        return {key: put_together(one, tensors) for key, one in content.items()}
    parts = [put_together(one, tensors) for one in content]
    return parts if kind == _LIST else tuple(parts)
