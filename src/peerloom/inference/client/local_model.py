"""A model run where the caller is; the only route that needs torch there."""

from pathlib import Path
from typing import Any

import numpy.typing as npt
import torch

from peerloom.inference.server.building import Part, build, read_blueprint, run_part
from peerloom.inference.server.torch_tensors import checked_inputs
from peerloom.inference.trusted_modules import TrustedModules
from peerloom.kit.clock import Clock
from peerloom.kit.raw_input import RawInput

Array = npt.NDArray[Any]


class LocalModel:
    """A model in this process, on its first CUDA device if there is one.

    Raises FailedPreconditionError for one that only a module which isn't among `modules` can build.
    """

    def __init__(self, path: Path, digest: str, modules: TrustedModules, clock: Clock) -> None:
        self._clock = clock
        device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        self._blueprint = read_blueprint(path, digest, modules)
        self._part = build(self._blueprint, 0, len(self._blueprint.layers), device)

    @property
    def input_dtype(self) -> str:
        """Type of the inputs' numbers."""
        return self._blueprint.origin.input_dtype

    @property
    def raw_input(self) -> RawInput | None:
        """What its task declared of raw inputs."""
        return self._blueprint.origin.raw_input

    @property
    def context(self) -> int:
        """Most tokens of a sequence; 0 for a model that doesn't continue any."""
        return self._blueprint.context

    def infer(self, inputs: Array) -> tuple[Array, float]:
        """Outputs and the seconds they took. Raises InvalidArgumentError for inputs that don't fit."""
        tensor = checked_inputs(inputs, self._blueprint.origin)
        started_s = self._clock.monotonic_s()
        outputs = run_part(self._part, tensor)
        return outputs.numpy(), self._clock.monotonic_s() - started_s

    def begin(self) -> "LocalSequence":
        """A sequence to be continued token by token."""
        return LocalSequence(self._part)


class LocalSequence:
    """A sequence and what the layers keep of it."""

    def __init__(self, part: Part) -> None:
        self._part = part
        self._caches: dict[str, Any] = {}

    def step(self, tokens: Array) -> Array:
        """Logits after the last of the next tokens [n, t]."""
        logits: Array = run_part(self._part, torch.from_numpy(tokens), self._caches).numpy()
        return logits
