"""Batches of any form: a tensor, or tuples, lists and mappings of batches, and a model called with one."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import torch
from torch import Tensor
from torch.utils.data import default_collate

from peerloom.errors import InvalidArgumentError

# A tensor [n, ...], or a tuple, list or mapping of nests; what else stands in one stays as it is.
Nest: TypeAlias = Any


def call_model(model: Callable[..., Nest], inputs: Nest) -> Nest:
    """The outputs for `inputs`: a mapping's entries go by name, a tuple's or list's in turn."""
    if isinstance(inputs, Mapping):
        return model(**inputs)
    if isinstance(inputs, tuple | list):
        return model(*inputs)
    return model(inputs)


def each_tensor(function: Callable[[Tensor], Tensor], nest: Nest) -> Nest:
    """A nest of the same form, with `function` of each tensor in place of that."""
    if isinstance(nest, Tensor):
        return function(nest)
    if isinstance(nest, Mapping):
        return {key: each_tensor(function, value) for key, value in nest.items()}
    if isinstance(nest, tuple | list):
        values = [each_tensor(function, value) for value in nest]
        return type(nest)(*values) if hasattr(nest, "_fields") else type(nest)(values)
    return nest


def moved(nest: Nest, device: torch.device) -> Nest:
    """The nest with its tensors on `device`."""
    return each_tensor(lambda tensor: tensor.to(device), nest)


def form_of(nest: Nest) -> str:
    """The nest's shapes, for people: [8, 3] of a tensor, {ids: [8, 16], mask: [8, 16]} of a mapping."""
    if isinstance(nest, Tensor):
        return str(list(nest.shape))
    if isinstance(nest, Mapping):
        return f"{{{', '.join(f'{key}: {form_of(value)}' for key, value in nest.items())}}}"
    if isinstance(nest, tuple | list):
        return f"({', '.join(map(form_of, nest))})"
    return type(nest).__name__


def sample_count(nest: Nest, what: str) -> int:
    """The samples n of a nest whose tensors are [n, ...]; `what` names it in errors.

    Raises InvalidArgumentError when there is no tensor, or the first dimensions differ.
    """
    counts = {len(tensor) if tensor.dim() else None for tensor in _tensors(nest)}
    count = counts.pop() if len(counts) == 1 else None
    if count is None:
        raise InvalidArgumentError.of_field(what, form_of(nest), "tensors [n, ...] of the same n samples")
    return count


def logits_of(outputs: Nest) -> Tensor:
    """The tensor of a model's outputs: they themselves, or what they call `logits`, as in transformers.

    Raises InvalidArgumentError for others: only the task knows what they mean.
    """
    is_mapping = isinstance(outputs, Mapping)
    found = outputs.get("logits") if is_mapping else getattr(outputs, "logits", outputs)
    if not isinstance(found, Tensor):
        raise InvalidArgumentError(
            f"The model gave {form_of(outputs)}, which is neither a tensor nor has one called logits. "
            "Override the task's loss() and metric(), which take whatever the model gives, or have the model "
            "give one of both: only such a model can be asked.",
            reason="OUTPUTS_NOT_UNDERSTOOD",
        )
    return found


def collated(rows: Sequence[Any], targets_key: str, task: str) -> tuple[Nest, Nest]:
    """Inputs and targets of samples: pairs, or mappings whose entry `targets_key` is the target.

    Lists of numbers, as Hugging Face's rows have them, become tensors. Raises
    InvalidArgumentError, naming what was found and the method of `task` to override, for other samples, and
    for samples that torch's default_collate can't put together.
    """
    first = rows[0]
    is_mapping = isinstance(first, Mapping)
    if is_mapping and targets_key not in first:
        raise _not_a_pair(task, f"mappings with the keys {', '.join(map(str, first))}", targets_key)
    if not is_mapping and not (isinstance(first, tuple | list) and len(first) == 2):
        many = f"s of {len(first)}" if isinstance(first, tuple | list) else "s"
        raise _not_a_pair(task, f"{type(first).__name__}{many}", targets_key)
    try:
        together = default_collate([with_tensors(row if is_mapping else tuple(row)) for row in rows])
    except (RuntimeError, TypeError, ValueError, KeyError) as error:
        raise InvalidArgumentError(
            f"Samples of {task}.data() can't be put together into a batch: {error}. Give all the same "
            f"shapes, or override {task}.collate(rows), e.g. to pad them.",
            reason="SAMPLES_NOT_COLLATED",
        ) from error
    if is_mapping:
        return together, together.pop(targets_key)
    inputs, targets = together
    return inputs, targets


def _not_a_pair(task: str, found: str, targets_key: str) -> InvalidArgumentError:
    return InvalidArgumentError(
        f"Samples of {task}.data() are {found}. They must be pairs (input, target), or mappings with an "
        f"entry {targets_key!r}: set {task}.targets_key to the entry that is the target, or override "
        f"{task}.collate(rows), which gives the inputs and the targets of a list of samples.",
        reason="SAMPLE_WITHOUT_TARGET",
    )


def with_tensors(value: Any) -> Any:
    """A sample with its lists of numbers as tensors, as Hugging Face's rows have them."""
    if isinstance(value, Mapping):
        return {key: with_tensors(entry) for key, entry in value.items()}
    if isinstance(value, tuple):
        return tuple(map(with_tensors, value))
    # default_collate would take the first numbers of all lists together, then the second ones.
    return torch.as_tensor(value) if isinstance(value, list) and _is_numeric(value) else value


def _is_numeric(value: Any) -> bool:
    while isinstance(value, list) and value:
        value = value[0]
    return isinstance(value, int | float)


def _tensors(nest: Nest) -> Iterator[Tensor]:
    if isinstance(nest, Tensor):
        yield nest
    elif isinstance(nest, Mapping | tuple | list):
        for value in nest.values() if isinstance(nest, Mapping) else nest:
            yield from _tensors(value)
