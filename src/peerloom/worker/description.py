"""What is written into a trained model's file, so that whoever holds it can build it."""

from collections.abc import Mapping

import torch

from peerloom.worker.kept_tensors import KeptTensors
from peerloom.worker.model_config import config_of
from peerloom.worker.model_origin import ModelOrigin
from peerloom.worker.task import Samples, Task, load_batch


def origin_of(
    task: Task, name: str, arguments: Mapping[str, str], samples: Samples, model: torch.nn.Module
) -> ModelOrigin:
    """The origin of a `model` trained for the task `name`; the first of `samples` shows its inputs."""
    inputs, _ = load_batch(task, samples, torch.zeros(1, dtype=torch.int64))
    buffers, config = KeptTensors(model).buffers, config_of(model)
    if not isinstance(inputs, torch.Tensor):
        keys = inputs if isinstance(inputs, Mapping) else range(len(inputs))
        names = tuple(map(str, keys))
        return ModelOrigin(name, arguments, (), "", buffers, input_names=names, config=config)
    dtype = str(inputs.dtype).removeprefix("torch.")
    return ModelOrigin(
        name, arguments, tuple(inputs.shape[1:]), dtype, buffers, task.raw_input, config=config
    )
