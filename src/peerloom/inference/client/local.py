"""The model is fetched and run in this process: torch is imported here and nowhere else in the SDK."""

import asyncio
import importlib.util
import os
import sys
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy.typing as npt

from peerloom.client.artifacts import AsyncArtifacts
from peerloom.client.remote_services import Services
from peerloom.errors import FailedPreconditionError
from peerloom.inference.client.costs import BatchTimes
from peerloom.inference.client.replica import BUILD_GUESS_S
from peerloom.inference.trusted_modules import BY_USER, TrustedModules
from peerloom.kit.clock import Clock

if TYPE_CHECKING:
    from peerloom.inference.client.local_model import LocalModel

Array = npt.NDArray[Any]
IMPORT_GUESS_S = 3.0
_KEPT = 4


class LocalRoute:
    """Models in this process: their files in the user's cache folder, the last 4 in memory.

    Besides those of built-in tasks, models of own tasks in the modules that the user trusts are built.
    """

    def __init__(self, services: Services, clock: Clock) -> None:
        self._services, self._modules, self._clock = services, trusted_by_user(os.environ), clock
        self._models: OrderedDict[str, LocalModel] = OrderedDict()
        self._times: dict[str, BatchTimes] = {}
        self._loading = asyncio.Lock()
        self._computing = 0
        self.idle = asyncio.Event()  # set while no model computes here
        self.idle.set()

    def times(self, digest: str, guess_s: float = 0.0) -> BatchTimes:
        """How long the model takes here."""
        return self._times.setdefault(digest, BatchTimes(guess_s))

    def why_not(self, task: str = "") -> str:
        """Why no model, or none of this task, can be run here; empty when it can."""
        if importlib.util.find_spec("torch") is None or importlib.util.find_spec("safetensors") is None:
            return "torch and safetensors aren't installed here: pip install 'peerloom[train]'"
        return self._modules.why_not(task)

    def ready_s(self, digest: str, size_bytes: int, bytes_per_s: float) -> tuple[float, float]:
        """Seconds that fetching and making ready would take: 0 and 0 for a model in memory."""
        if digest in self._models:
            return 0.0, 0.0
        fetch_s = 0.0 if cached_path(digest).is_file() else size_bytes / bytes_per_s
        return fetch_s, BUILD_GUESS_S + (0.0 if "torch" in sys.modules else IMPORT_GUESS_S)

    async def infer(self, digest: str, inputs: Array) -> tuple[Array, float]:
        """Outputs and the seconds that the model took. Raises a PeerloomError."""
        model, started_s = await self.model(digest), self._clock.monotonic_s()
        with self._busy():
            outputs, model_s = await asyncio.to_thread(model.infer, inputs)
        self.times(digest).note(len(inputs), self._clock.monotonic_s() - started_s)
        return outputs, model_s

    async def model(self, digest: str) -> "LocalModel":
        """The model, fetched and built if it isn't here. Raises FailedPreconditionError without torch."""
        async with self._loading:
            if digest not in self._models:
                if reason := self.why_not():
                    raise FailedPreconditionError(f"No model can be run here: {reason}.", reason="NO_TORCH")
                path = cached_path(digest)
                if not path.is_file():
                    await self._fetch(digest, path)
                self._models[digest] = await asyncio.to_thread(
                    _load, path, digest, self._modules, self._clock
                )
            self._models.move_to_end(digest)
            while len(self._models) > _KEPT:
                self._models.popitem(last=False)
            return self._models[digest]

    @contextmanager
    def _busy(self) -> Iterator[None]:
        self._computing += 1
        self.idle.clear()
        try:
            yield
        finally:
            self._computing -= 1
            if not self._computing:
                self.idle.set()

    async def _fetch(self, digest: str, path: Path) -> None:
        await asyncio.to_thread(path.parent.mkdir, parents=True, exist_ok=True)
        await AsyncArtifacts(self._services).get(digest, path)


def trusted_by_user(environment: Mapping[str, str]) -> TrustedModules:
    """The modules that PEERLOOM_MODULES names, separated by commas."""
    named = environment.get("PEERLOOM_MODULES", "").split(",")
    return TrustedModules([module.strip() for module in named if module.strip()], BY_USER)


def cached_path(digest: str) -> Path:
    """Where a model's file lies in the user's cache folder ($XDG_CACHE_HOME, else ~/.cache)."""
    root = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(root) / "peerloom" / "models" / f"{digest}.safetensors"


def _load(path: Path, digest: str, modules: TrustedModules, clock: Clock) -> "LocalModel":
    from peerloom.inference.client.local_model import LocalModel

    os.utime(path)
    return LocalModel(path, digest, modules, clock)
