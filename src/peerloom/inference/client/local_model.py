"""A model run where the caller is, and what runs it there; torch is imported when the first one is loaded."""

import importlib.util
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy.typing as npt

from peerloom.inference.server.computing import Computing, ServedModel, ServedPart
from peerloom.inference.server.input_checks import checked_inputs
from peerloom.inference.trusted_modules import BY_USER, TrustedModules
from peerloom.kit.clock import Clock
from peerloom.kit.raw_input import RawInput

if TYPE_CHECKING:
    from peerloom.inference.server.torch_computing import TorchComputing

Array = npt.NDArray[Any]
IMPORT_GUESS_S = 3.0


class LocalMachine(Protocol):
    """What a client needs of its own machine to run models; a test against a system in memory has another."""

    def why_not(self, task: str = "") -> str:
        """Why no model, or none of this task, can be run here; empty when it can."""

    @property
    def import_s(self) -> float:
        """Seconds until it could begin with building one."""

    def model_path(self, digest: str) -> Path:
        """Where a model's file is kept."""

    def computing(self) -> Computing:
        """What reads and computes it."""

    def close(self) -> None:
        """Ends what computes."""


class LocalModel:
    """A model in this process."""

    def __init__(self, model: ServedModel, part: ServedPart) -> None:
        self._model, self._part = model, part

    @classmethod
    async def load(cls, computing: Computing, path: Path, digest: str) -> "LocalModel":
        """Reads and builds it. Raises FailedPreconditionError for one that may not be built here."""
        model = await computing.read(path, digest)
        return cls(model, await model.build(0, len(model.layer_bytes)))

    @property
    def input_dtype(self) -> str:
        """Type of the inputs' numbers."""
        return self._model.origin.input_dtype

    @property
    def raw_input(self) -> RawInput | None:
        """What its task declared of raw inputs."""
        return self._model.origin.raw_input

    @property
    def context(self) -> int:
        """Most tokens of a sequence; 0 for a model that doesn't continue any."""
        return self._model.context

    async def infer(self, inputs: Array) -> tuple[Array, float]:
        """Outputs and the seconds they took. Raises InvalidArgumentError for inputs that don't fit."""
        return await self._part.run(checked_inputs(inputs, self._model.origin))

    def begin(self) -> "LocalSequence":
        """A sequence to be continued token by token."""
        return LocalSequence(self._part)


class LocalSequence:
    """A sequence and what the layers keep of it."""

    def __init__(self, part: ServedPart) -> None:
        self._part = part
        self._caches: dict[str, Any] = {}

    async def step(self, tokens: Array) -> Array:
        """Logits after the last of the next tokens [n, t]."""
        logits, _ = await self._part.run(tokens, self._caches)
        return logits


class OwnMachine:
    """This very machine: models by torch, of own tasks those of modules that the user trusts."""

    def __init__(self, clock: Clock) -> None:
        self._modules, self._clock = trusted_by_user(os.environ), clock
        self._computing: TorchComputing | None = None

    def why_not(self, task: str = "") -> str:
        """Whether torch is there, and the task's module trusted."""
        if importlib.util.find_spec("torch") is None or importlib.util.find_spec("safetensors") is None:
            return "torch and safetensors aren't installed here: pip install 'peerloom[train]'"
        return self._modules.why_not(task)

    @property
    def import_s(self) -> float:
        """What importing torch takes about."""
        return 0.0 if "torch" in sys.modules else IMPORT_GUESS_S

    def model_path(self, digest: str) -> Path:
        """In the user's cache folder."""
        return cached_path(digest)

    def computing(self) -> Computing:
        """By torch, on the first CUDA device if there is one."""
        if self._computing is None:
            from peerloom.inference.server.torch_computing import computing_here

            self._computing = computing_here(self._modules, self._clock)
        return self._computing

    def close(self) -> None:
        """Ends torch's thread."""
        if self._computing is not None:
            self._computing.executor.close()


def trusted_by_user(environment: Mapping[str, str]) -> TrustedModules:
    """The modules that PEERLOOM_MODULES names, separated by commas."""
    named = environment.get("PEERLOOM_MODULES", "").split(",")
    return TrustedModules([module.strip() for module in named if module.strip()], BY_USER)


def cached_path(digest: str) -> Path:
    """Where a model's file lies in the user's cache folder ($XDG_CACHE_HOME, else ~/.cache)."""
    root = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(root) / "peerloom" / "models" / f"{digest}.safetensors"
