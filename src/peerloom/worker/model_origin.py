"""What a model's file says of itself: whoever holds it can build the model and knows what it takes."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from peerloom.errors import DataLossError, InvalidArgumentError
from peerloom.kit.checks import check_line, check_range, check_text
from peerloom.kit.raw_input import NUMBER_TYPES, RawInput, check_shape, raw_input_from_json
from peerloom.kit.safetensors_file import LONGEST_ORIGIN, METADATA_KEY

_MOST_ARGUMENTS = 256


@dataclass(frozen=True)
class ModelOrigin:
    """The task and arguments that build the model, and shape and type of one sample of its inputs.

    `buffers` are the model's tensors that aren't parameters, by name; `raw_input` is what the task declares
    of raw samples, if it does. A model of several inputs has their `input_names` in place of a shape and a
    type; those of a tuple are called by their places. `config` is that of a model of transformers, or of its
    adapter.
    """

    task: str
    arguments: Mapping[str, str]
    input_shape: tuple[int, ...]
    input_dtype: str
    buffers: tuple[str, ...] = ()
    raw_input: RawInput | None = None
    input_names: tuple[str, ...] = ()
    config: Mapping[str, Any] | None = None

    def to_metadata(self) -> dict[str, str]:
        """As a safetensors file's metadata: one entry, as the order of several would be chance."""
        written = asdict(replace(self, raw_input=None))
        written["raw_input"] = self.raw_input.to_json() if self.raw_input else None
        if self.config is None:
            del written["config"]
        return {METADATA_KEY: json.dumps(written, sort_keys=True)}


def read_origin(metadata: Mapping[str, str] | None, digest: str) -> ModelOrigin:
    """The origin in a file's metadata.

    Raises DataLossError when it has none, or one that can't be read; InvalidArgumentError, naming the field,
    for one whose values can't be.
    """
    try:
        written = (metadata or {})[METADATA_KEY]
        check_text(f"metadata[{METADATA_KEY}]", written, high=LONGEST_ORIGIN)
        found = json.loads(written)
        origin = ModelOrigin(
            str(found["task"]),
            {str(key): str(value) for key, value in found["arguments"].items()},
            tuple(int(length) for length in found["input_shape"]),
            str(found["input_dtype"]),
            tuple(str(name) for name in found.get("buffers", ())),
            raw_input_from_json(raw, "metadata.raw_input") if (raw := found.get("raw_input")) else None,
            tuple(str(name) for name in found.get("input_names", ())),
            dict(config) if (config := found.get("config")) is not None else None,
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
    check_range("metadata.input_names' number", len(origin.input_names), 0, _MOST_ARGUMENTS)
    for name in origin.input_names:
        check_line("metadata.input_names", name, low=1, high=128)
    if origin.input_names and (origin.input_shape, origin.input_dtype, origin.raw_input) == ((), "", None):
        return
    check_shape("metadata.input_shape", origin.input_shape)
    if origin.input_dtype not in NUMBER_TYPES:
        limit = f"one of {', '.join(NUMBER_TYPES)}"
        raise InvalidArgumentError.of_field("metadata.input_dtype", origin.input_dtype[:32], limit)
    raw = origin.raw_input
    if raw is not None and (raw.shape, raw.tensor_dtype) != (origin.input_shape, origin.input_dtype):
        found = f"{raw.tensor_dtype}{list(raw.shape)}"
        limit = f"what gives the model's {origin.input_dtype}{list(origin.input_shape)}"
        raise InvalidArgumentError.of_field("metadata.raw_input", found, limit)
