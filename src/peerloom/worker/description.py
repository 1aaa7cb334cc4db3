"""What a model's file says of itself: whoever holds it can build the model and knows what it takes."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass

import torch

from peerloom.errors import DataLossError
from peerloom.worker.task import Samples, Task

_KEY = "peerloom"


@dataclass(frozen=True)
class ModelOrigin:
    """The task and arguments that build the model, and shape and type of one sample of its inputs."""

    task: str
    arguments: Mapping[str, str]
    input_shape: tuple[int, ...]
    input_dtype: str

    def to_metadata(self) -> dict[str, str]:
        """As a safetensors file's metadata: one entry, as the order of several would be chance."""
        return {_KEY: json.dumps(asdict(self), sort_keys=True)}


def origin_of(task: Task, name: str, arguments: Mapping[str, str], samples: Samples) -> ModelOrigin:
    """The origin of a model trained for the task `name`, its inputs as the first of `samples` shows them."""
    inputs, _ = task.batch(samples, torch.zeros(1, dtype=torch.int64))
    return ModelOrigin(name, arguments, tuple(inputs.shape[1:]), str(inputs.dtype).removeprefix("torch."))


def read_origin(metadata: Mapping[str, str] | None, digest: str) -> ModelOrigin:
    """The origin in a file's metadata. Raises DataLossError when it has none, or one that can't be read."""
    try:
        found = json.loads((metadata or {})[_KEY])
        return ModelOrigin(
            str(found["task"]),
            {str(key): str(value) for key, value in found["arguments"].items()},
            tuple(int(length) for length in found["input_shape"]),
            str(found["input_dtype"]),
        )
    except (KeyError, ValueError, TypeError, AttributeError) as error:
        raise DataLossError(
            f"The artifact {digest[:12]} doesn't say which task built it ({type(error).__name__}: {error}), "
            "so it can't be run. Models of `peerloom train` do; fetch others and load them by hand.",
            reason="MODEL_WITHOUT_ORIGIN",
        ) from error
