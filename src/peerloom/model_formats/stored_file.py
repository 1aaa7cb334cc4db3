"""A model's file as a job leaves it, or a checkpoint: tensors by name, and what it says of itself."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from torch import Tensor

from peerloom.errors import DataLossError
from peerloom.kit.safetensors_file import METADATA_KEY, check_header
from peerloom.worker.model_origin import read_origin
from peerloom.worker.updating.named_state import parted

_COUNTERS, _MODEL = "counters", "model."


@dataclass(frozen=True)
class StoredFile:
    """What a file holds: a model's `tensors`, and its `config` if it has one.

    A checkpoint's has an `optimiser` besides: its state by the names of the parameters, and its groups; and
    the number of committed steps.
    """

    tensors: Mapping[str, Tensor]
    config: Mapping[str, Any] | None = None
    optimiser: Mapping[str, Any] = field(default_factory=dict)
    step: int | None = None


def read_stored(path: Path, digest: str) -> StoredFile:
    """Reads a model, or a checkpoint. Raises DataLossError for a file that is neither."""
    try:
        check_header(path)
        with safe_open(path, framework="pt") as file:
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118  # it is no mapping
            metadata = file.metadata() or {}
        if _COUNTERS in tensors:
            return _checkpoint_of(tensors)
    except (SafetensorError, OSError, KeyError, ValueError, TypeError, AttributeError) as error:
        raise DataLossError(
            f"The artifact {digest[:12]} is no model or checkpoint: {type(error).__name__}: {error}."
        ) from error
    return StoredFile(tensors, read_origin(metadata, digest).config if METADATA_KEY in metadata else None)


def _checkpoint_of(tensors: dict[str, Tensor]) -> StoredFile:
    counters = json.loads(bytes(tensors.pop(_COUNTERS).tolist()))
    model = {name.removeprefix(_MODEL): t for name, t in tensors.items() if name.startswith(_MODEL)}
    updater = counters["updater"]
    optimiser = {"state": parted(updater["state"], tensors), "param_groups": updater["groups"]}
    return StoredFile(model, None, optimiser, int(counters["step"]))
