"""What a model's file says of itself: whoever holds it can build the model and knows what it takes."""

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass

import torch

from peerloom.errors import DataLossError, InvalidArgumentError
from peerloom.kit.checks import check_line, check_range, check_text
from peerloom.kit.safetensors_file import METADATA_KEY
from peerloom.kit.tensors import DTYPES
from peerloom.worker.task import Samples, Task

_LONGEST_ORIGIN = 65_536
_MOST_ARGUMENTS, _MOST_DIMENSIONS = 256, 7  # a batch has one more
_MOST_NUMBERS = 2**24  # in one sample: a model is tried on one of zeros


@dataclass(frozen=True)
class ModelOrigin:
    """The task and arguments that build the model, and shape and type of one sample of its inputs.

    `buffers` are the model's tensors that aren't parameters, by name.
    """

    task: str
    arguments: Mapping[str, str]
    input_shape: tuple[int, ...]
    input_dtype: str
    buffers: tuple[str, ...] = ()

    def to_metadata(self) -> dict[str, str]:
        """As a safetensors file's metadata: one entry, as the order of several would be chance."""
        return {METADATA_KEY: json.dumps(asdict(self), sort_keys=True)}


def origin_of(
    task: Task, name: str, arguments: Mapping[str, str], samples: Samples, model: torch.nn.Module
) -> ModelOrigin:
    """The origin of a `model` trained for the task `name`; the first of `samples` shows its inputs."""
    inputs, _ = task.batch(samples, torch.zeros(1, dtype=torch.int64))
    dtype = str(inputs.dtype).removeprefix("torch.")
    return ModelOrigin(name, arguments, tuple(inputs.shape[1:]), dtype, buffers_of(model))


def buffers_of(model: torch.nn.Module) -> tuple[str, ...]:
    """The names in the model's state that aren't parameters, in order."""
    parameters = {name for name, _ in model.named_parameters(remove_duplicate=False)}
    return tuple(sorted(model.state_dict().keys() - parameters))


def read_origin(metadata: Mapping[str, str] | None, digest: str) -> ModelOrigin:
    """The origin in a file's metadata.

    Raises DataLossError when it has none, or one that can't be read; InvalidArgumentError, naming the field,
    for one whose values can't be.
    """
    try:
        written = (metadata or {})[METADATA_KEY]
        check_text(f"metadata[{METADATA_KEY}]", written, high=_LONGEST_ORIGIN)
        found = json.loads(written)
        origin = ModelOrigin(
            str(found["task"]),
            {str(key): str(value) for key, value in found["arguments"].items()},
            tuple(int(length) for length in found["input_shape"]),
            str(found["input_dtype"]),
            tuple(str(name) for name in found.get("buffers", ())),
        )
    except (KeyError, ValueError, TypeError, AttributeError, OverflowError, RecursionError) as error:
        raise DataLossError(
            f"The artifact {digest[:12]} doesn't say which task built it ({type(error).__name__}: {error}), "
            "so it can't be run. Models of `peerloom train` do; fetch others and load them by hand.",
            reason="MODEL_WITHOUT_ORIGIN",
        ) from error
    _check(origin)
    return origin


def _check(origin: ModelOrigin) -> None:
    """A file may come from anybody: what would be imported, looked up or reserved is bounded here."""
    check_line("metadata.task", origin.task, low=1, high=256)
    check_range("metadata.arguments' number", len(origin.arguments), 0, _MOST_ARGUMENTS)
    for name, value in origin.arguments.items():
        check_line("metadata.arguments' name", name, low=1, high=128)
        check_text(f"metadata.arguments[{name}]", value, high=4096)
    check_range("metadata.input_shape's length", len(origin.input_shape), 0, _MOST_DIMENSIONS)
    for length in origin.input_shape:
        check_range("metadata.input_shape", length, 0, _MOST_NUMBERS)
    check_range("metadata.input_shape's product", math.prod(origin.input_shape), 0, _MOST_NUMBERS)
    if origin.input_dtype not in DTYPES:
        limit = f"one of {', '.join(DTYPES)}"
        raise InvalidArgumentError.of_field("metadata.input_dtype", origin.input_dtype[:32], limit)
