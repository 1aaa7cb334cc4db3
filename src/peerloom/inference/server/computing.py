"""What serving asks of whatever computes: models by their layers, over arrays. On a real node torch does."""

from pathlib import Path
from typing import Any, Protocol

import numpy.typing as npt

from peerloom.errors import DataLossError, FailedPreconditionError
from peerloom.kit.raw_input import RawInput
from peerloom.v1.inference_pb2 import ModelDescription
from peerloom.worker.model_origin import ModelOrigin

Array = npt.NDArray[Any]


class ServedPart(Protocol):
    """Layers `first` to `end`, one past the last, of a model, ready to compute.

    `raw_input` is what the first part takes, if that is declared; `memory_bytes` is what its parameters take.
    """

    @property
    def digest(self) -> str: ...

    @property
    def first(self) -> int: ...

    @property
    def end(self) -> int: ...

    @property
    def memory_bytes(self) -> int: ...

    @property
    def raw_input(self) -> RawInput | None: ...

    async def run(self, inputs: Array, caches: dict[str, Any] | None = None) -> tuple[Array, float]:
        """The outputs, and the seconds they took; with `caches` (changed in place) it continues a sequence.

        Raises FailedPreconditionError for what the model's own code raises.
        """


class ServedModel(Protocol):
    """A model that can be built: where its file lies, what that says of it, and each layer's bytes.

    `context` is the most tokens of a sequence; 0 for a model that doesn't continue any.
    """

    @property
    def path(self) -> Path: ...

    @property
    def origin(self) -> ModelOrigin: ...

    @property
    def layer_bytes(self) -> tuple[int, ...]: ...

    @property
    def context(self) -> int: ...

    async def describe(self) -> ModelDescription:
        """Its layers, with what each takes for one sample."""

    async def build(self, first: int, end: int) -> ServedPart:
        """These layers with their parameters. Raises DataLossError when the file lacks some."""


class Computing(Protocol):
    """Reads models' files, and computes what they hold."""

    async def read(self, path: Path, digest: str) -> ServedModel:
        """What a file says of itself. Raises DataLossError, InvalidArgumentError, FailedPreconditionError."""


def model_failed(digest: str, inputs: Any, error: Exception) -> FailedPreconditionError:
    """What the code of a user's model raised for `inputs`, an array or a tensor."""
    return FailedPreconditionError(
        f"The model {digest[:12]} failed on inputs {list(inputs.shape)} {inputs.dtype}: "
        f"{type(error).__name__}: {error}",
        reason="MODEL_FAILED",
    )


def not_safetensors(digest: str, error: Exception) -> DataLossError:
    """An artifact that is no model's file."""
    return DataLossError(f"The artifact {digest[:12]} isn't a safetensors file: {error}.")
