"""Stands in for torch where models answer: on a node beside its agent, or in a client's own process."""

import asyncio
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from peerloom.errors import PeerloomError
from peerloom.inference.server.computing import Array, model_failed, not_safetensors
from peerloom.kit.raw_input import RawInput
from peerloom.kit.safetensors_file import read_header
from peerloom.testing.model_script import HERE, ModelScript, Question
from peerloom.testing.simulated_processes import MemoryWorld
from peerloom.v1.inference_pb2 import ModelDescription
from peerloom.worker.model_origin import ModelOrigin, read_origin


class ScriptedComputing:
    """Reads models as they are, and answers by their tasks' scripts, one batch after the other."""

    def __init__(self, world: MemoryWorld, node: str) -> None:
        self.world, self.node = world, node
        self.turn = asyncio.Lock()

    async def read(self, path: Path, digest: str) -> "ScriptedModel":
        """What the file says of itself."""
        try:
            with path.open("rb") as file:
                header, _ = read_header(file)
        except (OSError, ValueError) as error:
            raise not_safetensors(digest, error) from error
        return ScriptedModel(path, digest, read_origin(header.get("__metadata__"), digest), self)


@dataclass(frozen=True)
class ScriptedModel:
    """A model by its file; its task's script says the rest."""

    path: Path
    digest: str
    origin: ModelOrigin
    computing: ScriptedComputing
    context: int = 0

    @property
    def script(self) -> ModelScript:
        """As it is now."""
        return self.computing.world.models.of(self.origin.task)

    @property
    def layer_bytes(self) -> tuple[int, ...]:
        """Equal shares."""
        return (self.script.model_bytes // self.script.layers,) * self.script.layers

    async def describe(self) -> ModelDescription:
        """Its layers, which all take what came in; the last one's output is guessed from the labels."""
        origin, script, raw = self.origin, self.script, self.origin.raw_input
        described = ModelDescription(
            digest=self.digest,
            task=origin.task,
            input_shape=origin.input_shape,
            input_dtype=origin.input_dtype,
            raw_input=raw.to_message() if raw else None,
        )
        passed_bytes = math.prod(origin.input_shape) * np.dtype(origin.input_dtype).itemsize
        for index, parameter_bytes in enumerate(self.layer_bytes):
            layer = described.layers.add(name=str(index), parameter_bytes=parameter_bytes)
            layer.seconds_per_sample = script.seconds(1) / script.layers
            layer.output_bytes_per_sample = passed_bytes
        if raw is not None and raw.labels:
            described.layers[-1].output_bytes_per_sample = 4 * len(raw.labels)
        return described

    async def build(self, first: int, end: int) -> "ScriptedPart":
        """These layers."""
        return ScriptedPart(self, first, end, sum(self.layer_bytes[first:end]))


@dataclass(frozen=True)
class ScriptedPart:
    """Layers that pass on what they are given; the model's last one answers."""

    model: ScriptedModel
    first: int
    end: int
    memory_bytes: int

    @property
    def digest(self) -> str:
        """The model's."""
        return self.model.digest

    @property
    def raw_input(self) -> RawInput | None:
        """What the first part takes."""
        return self.model.origin.raw_input if self.first == 0 else None

    async def run(self, inputs: Array, caches: dict[str, Any] | None = None) -> tuple[Array, float]:
        """What the script says, and the seconds that it says."""
        computing, script = self.model.computing, self.model.script
        seconds = script.seconds(len(inputs)) * (self.end - self.first) / script.layers
        async with computing.turn:
            if computing.world.models.is_lost(self.model.origin.task, computing.node):
                await _die(computing, seconds / 2)
            await asyncio.sleep(seconds)
            return (self._answer(script, inputs) if self.end == script.layers else inputs), seconds

    def _answer(self, script: ModelScript, inputs: Array) -> Array:
        node, task = self.model.computing.node, self.model.origin.task
        try:
            return np.asarray(script.answer(Question(inputs, node, self.digest, task)))
        except PeerloomError:
            raise
        except Exception as error:  # as the code of a user's model may
            raise model_failed(self.digest, inputs, error) from error


class ScriptedMachine:
    """A client's own machine: whether it could run models is for the test to say, not what is installed."""

    def __init__(self, world: MemoryWorld, *, computes: bool) -> None:
        self._world, self._computes = world, computes
        self._computing = ScriptedComputing(world, HERE)

    def why_not(self, task: str = "") -> str:
        """As where torch is missing."""
        return "" if self._computes else "a system in memory has torch with computes_here=True only"

    @property
    def import_s(self) -> float:
        """Nothing is imported."""
        return 0.0

    def model_path(self, digest: str) -> Path:
        """In the system's own folder, which ends with it."""
        return self._world.folder / HERE / f"{digest}.safetensors"

    def computing(self) -> ScriptedComputing:
        """By script."""
        return self._computing

    def close(self) -> None:
        """Nothing is open."""


async def _die(computing: ScriptedComputing, after_s: float) -> None:
    """The node dies in the midst of it; nobody hears what it would have answered."""
    process = computing.world.processes[computing.node]
    computing.world.loop.later(after_s, process.kill, "its script says so")
    await asyncio.Event().wait()
