"""From an artifact's file to layers in memory, of which only the wanted ones take any; and what they cost."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor, nn

from peerloom.errors import DataLossError, FailedPreconditionError, PeerloomError
from peerloom.inference.server.computing import model_failed, not_safetensors
from peerloom.inference.server.layers import run_layers
from peerloom.inference.trusted_modules import TrustedModules
from peerloom.kit.clock import Clock
from peerloom.kit.raw_input import RawInput
from peerloom.kit.safetensors_file import check_header
from peerloom.v1.inference_pb2 import ModelDescription, ModelLayer
from peerloom.worker.model_origin import ModelOrigin, read_origin
from peerloom.worker.plan.chain import IncrementalModel, Layer, layers_of
from peerloom.worker.preparing import prepared
from peerloom.worker.task import load_task

_REPEATS = 3  # of a measurement; the median counts


@dataclass(frozen=True)
class Blueprint:
    """A model that can be built: where its bytes lie, what it is, and its chain of layers without memory."""

    path: Path
    digest: str
    origin: ModelOrigin
    layers: tuple[Layer, ...]
    incremental: bool
    context: int


@dataclass(frozen=True)
class Part:
    """Layers `first` to `end`, one past the last, of a model, ready to compute."""

    digest: str
    first: int
    end: int
    layers: list[Layer]
    device: torch.device
    raw_input: RawInput | None = None  # what the first part takes, if that is declared

    @property
    def memory_bytes(self) -> int:
        """Bytes of its parameters."""
        return sum(layer.parameter_bytes for layer in self.layers)


def read_blueprint(path: Path, digest: str, modules: TrustedModules) -> Blueprint:
    """What the artifact says of itself; of own tasks only those in `modules` are imported.

    Raises DataLossError for a file that isn't safetensors or has no origin, InvalidArgumentError for a header
    or origin beyond its limits, and FailedPreconditionError when the task that builds it may not, or can't,
    be made here, or its model takes several inputs.
    """
    try:
        check_header(path)
        with safe_open(path, framework="pt") as file:
            origin = read_origin(file.metadata(), digest)
    except (SafetensorError, OSError) as error:
        raise not_safetensors(digest, error) from error
    _check_inputs(origin, digest)
    _check_module(origin, digest, modules)
    with torch.device("meta"):
        model = _model_of(origin, digest)
    layers = tuple(layers_of(model))
    incremental = isinstance(model, IncrementalModel)
    return Blueprint(
        path, digest, origin, layers, incremental, model.context if isinstance(model, IncrementalModel) else 0
    )


def build(blueprint: Blueprint, first: int, end: int, device: torch.device) -> Part:
    """The layers with their parameters on `device`. Raises DataLossError when the file lacks some."""
    # What parameters don't hold (masks made in a constructor) has no content on the meta device: such a
    # model is built whole, and all but the wanted layers is dropped again.
    for whole in (False, True):
        with torch.device("cpu" if whole else "meta"):
            model = _model_of(blueprint.origin, blueprint.digest)
        _load(model, blueprint, None if whole else _names(model, first, end))
        layers = layers_of(model)[first:end]
        if not any(tensor.is_meta for layer in layers for tensor in _tensors(layer.module)):
            break
    for layer in layers:
        layer.module.to(device).eval().requires_grad_(False)
    return Part(
        blueprint.digest, first, end, layers, device, blueprint.origin.raw_input if first == 0 else None
    )


def sample_inputs(origin: ModelOrigin, count: int) -> Tensor:
    """The least values of the shape and type that the model takes, zeros unless told, [count, ...]."""
    raw = origin.raw_input
    dtype, value = (raw.dtype, raw.low) if raw else (origin.input_dtype, 0)
    return torch.full((count, *origin.input_shape), value, dtype=getattr(torch, dtype))


def run_part(part: Part, inputs: Tensor, caches: dict[str, Any] | None = None) -> Tensor:
    """The part's outputs on the CPU; with `caches` (changed in place) the inputs continue a sequence.

    The first part takes raw inputs where these are declared. Errors of the model's code come as
    FailedPreconditionError.
    """
    try:
        tensor = prepared(inputs, part.raw_input)
        return run_layers(part.layers, tensor.to(part.device), caches).cpu()
    except PeerloomError:
        raise
    except Exception as error:
        # The user's model may raise anything.
        raise model_failed(part.digest, inputs, error) from error


def describe(blueprint: Blueprint, device: torch.device, clock: Clock) -> ModelDescription:
    """The model's layers with their bytes and seconds for one sample.

    A layer that fails on zeros, and those after it, stay unmeasured (0): the model may need real inputs.
    """
    origin = blueprint.origin
    answer = ModelDescription(
        digest=blueprint.digest,
        task=origin.task,
        input_shape=origin.input_shape,
        input_dtype=origin.input_dtype,
        incremental=blueprint.incremental,
        context=blueprint.context,
        raw_input=origin.raw_input.to_message() if origin.raw_input else None,
    )
    # A token at a time is what a sequence's layers will be asked for.
    inputs: Tensor | None = sample_inputs(origin, 1)
    if blueprint.incremental and inputs is not None:
        inputs = inputs[:, :1]
    for index, layer in enumerate(blueprint.layers):
        described = answer.layers.add(name=layer.name, parameter_bytes=layer.parameter_bytes)
        if inputs is not None:
            inputs = _measure(build(blueprint, index, index + 1, device), inputs, described, clock)
    return answer


def _check_module(origin: ModelOrigin, digest: str, modules: TrustedModules) -> None:
    if reason := modules.why_not(origin.task):
        raise FailedPreconditionError(
            f"The model {digest[:12]} is not built: {reason}.",
            reason="MODEL_NOT_BUILDABLE",
            metadata={"task": origin.task},
        )


def _check_inputs(origin: ModelOrigin, digest: str) -> None:
    if origin.input_names:
        raise FailedPreconditionError(
            f"The model {digest[:12]} takes {len(origin.input_names)} inputs "
            f"({', '.join(origin.input_names)}), and inference asks with one tensor. Fetch the file "
            "(`peerloom models get`), and load its parameters into the task's model.",
            reason="MODEL_TAKES_SEVERAL_INPUTS",
            metadata={"task": origin.task},
        )


def _model_of(origin: ModelOrigin, digest: str) -> nn.Module:
    try:
        return load_task(origin.task, origin.arguments).model()
    except PeerloomError as error:
        raise FailedPreconditionError(
            f"The model {digest[:12]} can't be built here: {error.message}",
            reason="MODEL_NOT_BUILDABLE",
            metadata={"task": origin.task},
        ) from error


def _tensors(module: nn.Module) -> list[Tensor]:
    return [*module.parameters(), *module.buffers()]


def _names(model: nn.Module, first: int, end: int) -> set[str]:
    wanted = {id(tensor) for layer in layers_of(model)[first:end] for tensor in _tensors(layer.module)}
    named = [*model.named_parameters(remove_duplicate=False), *model.named_buffers(remove_duplicate=False)]
    return {name for name, tensor in named if id(tensor) in wanted}


def _load(model: nn.Module, blueprint: Blueprint, names: set[str] | None) -> None:
    expected = set(model.state_dict())
    wanted = expected if names is None else expected & names
    with safe_open(blueprint.path, framework="pt") as file:
        there = set(file.keys())
        if wanted - there:
            missing = ", ".join(sorted(wanted - there)[:5])
            raise DataLossError(f"The model {blueprint.digest[:12]} lacks parameters of its task: {missing}.")
        tensors = {name: file.get_tensor(name) for name in wanted}
    try:
        model.load_state_dict(tensors, strict=False, assign=True)
    except RuntimeError as error:
        raise DataLossError(f"The model {blueprint.digest[:12]} doesn't fit its task: {error}") from error


def _measure(part: Part, inputs: Tensor, described: ModelLayer, clock: Clock) -> Tensor | None:
    try:
        times_s = []
        for _ in range(_REPEATS):
            started_s = clock.monotonic_s()
            outputs = run_part(part, inputs)
            times_s.append(clock.monotonic_s() - started_s)
    except PeerloomError:
        return None
    described.seconds_per_sample = sorted(times_s)[_REPEATS // 2]
    described.output_bytes_per_sample = outputs.numel() * outputs.element_size()
    return outputs
