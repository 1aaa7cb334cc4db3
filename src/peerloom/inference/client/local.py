"""The model is fetched and run in this process."""

import asyncio
import os
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy.typing as npt

from peerloom.client.artifacts import AsyncArtifacts
from peerloom.client.remote_services import Services
from peerloom.errors import FailedPreconditionError
from peerloom.inference.client.costs import BatchTimes
from peerloom.inference.client.local_model import LocalModel
from peerloom.inference.client.replica import BUILD_GUESS_S
from peerloom.kit.clock import Clock

Array = npt.NDArray[Any]
LOOK_S = 0.05  # between two looks whether another client's fetch is over
_KEPT = 4


class LocalRoute:
    """Models in this process: their files in the user's cache folder, the last 4 in memory."""

    def __init__(self, services: Services, clock: Clock) -> None:
        self._services, self._clock = services, clock
        self._machine = services.transport.local_machine(clock)
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
        return self._machine.why_not(task)

    def ready_s(self, digest: str, size_bytes: int, bytes_per_s: float) -> tuple[float, float]:
        """Seconds that fetching and making ready would take: 0 and 0 for a model in memory."""
        if digest in self._models:
            return 0.0, 0.0
        fetch_s = 0.0 if self._machine.model_path(digest).is_file() else size_bytes / bytes_per_s
        return fetch_s, BUILD_GUESS_S + self._machine.import_s

    async def infer(self, digest: str, inputs: Array) -> tuple[Array, float]:
        """Outputs and the seconds that the model took. Raises a PeerloomError."""
        model, started_s = await self.model(digest), self._clock.monotonic_s()
        with self._busy():
            outputs, model_s = await model.infer(inputs)
        self.times(digest).note(len(inputs), self._clock.monotonic_s() - started_s)
        return outputs, model_s

    async def model(self, digest: str) -> LocalModel:
        """The model, fetched and built if it isn't here. Raises FailedPreconditionError without torch."""
        async with self._loading:
            if digest not in self._models:
                if reason := self.why_not():
                    raise FailedPreconditionError(f"No model can be run here: {reason}.", reason="NO_TORCH")
                path = self._machine.model_path(digest)
                if not path.is_file():
                    await self._fetch(digest, path)
                await asyncio.to_thread(os.utime, path)
                computing = await asyncio.to_thread(self._machine.computing)  # imports torch
                self._models[digest] = await LocalModel.load(computing, path, digest)
            self._models.move_to_end(digest)
            while len(self._models) > _KEPT:
                self._models.popitem(last=False)
            return self._models[digest]

    def close(self) -> None:
        """Ends what computes here."""
        self._machine.close()

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
        while not await asyncio.to_thread(path.is_file):
            try:
                await AsyncArtifacts(self._services).get(digest, path)
            except FailedPreconditionError as error:
                if error.reason != "FETCH_UNDER_WAY":
                    raise
                # Another client of this user is at it. If that one dies, this one goes on with what has come.
                await asyncio.sleep(LOOK_S)
