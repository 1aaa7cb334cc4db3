"""Computing by torch, on one thread: two models at once would only take each other's cores."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import torch

from peerloom.inference.server.building import Blueprint, Part, build, describe, read_blueprint, run_part
from peerloom.inference.server.computing import Array
from peerloom.inference.trusted_modules import TrustedModules
from peerloom.kit.clock import Clock
from peerloom.kit.raw_input import RawInput
from peerloom.v1.inference_pb2 import ModelDescription
from peerloom.worker.model_origin import ModelOrigin

T = TypeVar("T")


class TorchExecutor:
    """The thread, on which one piece of work follows the other."""

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="inference")

    async def run(self, work: Callable[[], T]) -> T:
        """The work's result, in its turn."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)

    def close(self) -> None:
        """Ends the thread once its work is done."""
        self._thread.shutdown(wait=False, cancel_futures=True)


@dataclass(frozen=True)
class TorchComputing:
    """Models on one device; of own tasks those in these `modules`."""

    device: torch.device
    modules: TrustedModules
    executor: TorchExecutor
    clock: Clock

    async def read(self, path: Path, digest: str) -> "TorchModel":
        """What a file says of itself; raises what `read_blueprint` does."""
        return TorchModel(await self.executor.run(lambda: read_blueprint(path, digest, self.modules)), self)


def computing_here(modules: TrustedModules, clock: Clock) -> TorchComputing:
    """For a client's own process: on its first CUDA device if there is one."""
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    return TorchComputing(device, modules, TorchExecutor(), clock)


@dataclass(frozen=True)
class TorchModel:
    """A model as torch builds it."""

    blueprint: Blueprint
    computing: TorchComputing

    @property
    def path(self) -> Path:
        """Where its file lies."""
        return self.blueprint.path

    @property
    def origin(self) -> ModelOrigin:
        """What its file says of it."""
        return self.blueprint.origin

    @property
    def layer_bytes(self) -> tuple[int, ...]:
        """Bytes of each layer's parameters."""
        return tuple(layer.parameter_bytes for layer in self.blueprint.layers)

    @property
    def context(self) -> int:
        """Most tokens of a sequence."""
        return self.blueprint.context

    async def describe(self) -> ModelDescription:
        """Each layer measured."""
        device, clock = self.computing.device, self.computing.clock
        return await self.computing.executor.run(lambda: describe(self.blueprint, device, clock))

    async def build(self, first: int, end: int) -> "TorchPart":
        """These layers on the device."""
        device = self.computing.device
        part = await self.computing.executor.run(lambda: build(self.blueprint, first, end, device))
        return TorchPart(part, self.computing.executor, self.computing.clock)


@dataclass(frozen=True)
class TorchPart:
    """Layers that torch computes."""

    part: Part
    executor: TorchExecutor
    clock: Clock

    @property
    def digest(self) -> str:
        """The model's."""
        return self.part.digest

    @property
    def first(self) -> int:
        """The first layer."""
        return self.part.first

    @property
    def end(self) -> int:
        """One past the last layer."""
        return self.part.end

    @property
    def memory_bytes(self) -> int:
        """Bytes of its parameters."""
        return self.part.memory_bytes

    @property
    def raw_input(self) -> RawInput | None:
        """What the first part takes, if that is declared."""
        return self.part.raw_input

    async def run(self, inputs: Array, caches: dict[str, Any] | None = None) -> tuple[Array, float]:
        """The outputs, and the seconds they took; bfloat16, which numpy doesn't know, comes as float32."""

        def work() -> tuple[Array, float]:
            started_s = self.clock.monotonic_s()
            outputs = run_part(self.part, torch.from_numpy(inputs), caches)
            model_s = self.clock.monotonic_s() - started_s
            plain = outputs.float() if outputs.dtype is torch.bfloat16 else outputs
            return plain.contiguous().numpy(), model_s

        return await self.executor.run(work)
