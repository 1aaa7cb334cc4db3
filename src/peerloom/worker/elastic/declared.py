"""How a script's model is made and what it takes: what its file says, so that it can be asked."""

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from peerloom.errors import InvalidArgumentError
from peerloom.worker.batches import form_of
from peerloom.worker.kept_tensors import KeptTensors
from peerloom.worker.model_config import config_of
from peerloom.worker.model_origin import ModelOrigin
from peerloom.worker.step_chance import kept_chance
from peerloom.worker.task import load_task


def declared_origin(model: nn.Module, task: str, arguments: Mapping[str, str], inputs: Tensor) -> ModelOrigin:
    """The origin of a `model` as the task `task` makes it, of which `inputs` [n, ...] are prepared samples.

    Raises what `load_task` does, and InvalidArgumentError where the task makes another model, or declares
    other raw inputs.
    """
    with kept_chance(torch.device("cpu")):
        made = load_task(task, arguments)
        own = _form(made.model())
    trained = _form(model)
    if own != trained:
        odd = sorted(name for name in own.keys() | trained.keys() if own.get(name) != trained.get(name))
        found = f"of {odd[0]} {own.get(odd[0], 'nothing')}"
        limit = f"what makes the prepared model, which has {trained.get(odd[0], 'nothing')} there"
        raise InvalidArgumentError.of_field("run.declare's task", found, limit)
    if not isinstance(inputs, Tensor) or inputs.dim() < 1:
        limit = "a tensor [n, ...] of samples as the model takes them"
        raise InvalidArgumentError.of_field("run.declare's inputs", form_of(inputs), limit)
    dtype, raw = str(inputs.dtype).removeprefix("torch."), made.raw_input
    shape = tuple(inputs.shape[1:])
    if raw is not None and (raw.shape, raw.tensor_dtype) != (shape, dtype):
        limit = f"{raw.tensor_dtype}{list(raw.shape)}, as the task's raw_input becomes"
        raise InvalidArgumentError.of_field("run.declare's inputs", f"{dtype}{list(shape)}", limit)
    buffers = KeptTensors(model).buffers
    return ModelOrigin(task, dict(arguments), shape, dtype, buffers, raw, config=config_of(model))


def _form(model: nn.Module) -> dict[str, list[int]]:
    return {name: list(tensor.shape) for name, tensor in model.state_dict().items()}
