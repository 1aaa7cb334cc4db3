"""Models' files for the benchmarks of inference, with parameters by chance from a seed."""

from pathlib import Path

import torch
from safetensors.torch import save_file

from peerloom.worker.model_origin import ModelOrigin
from peerloom.worker.task import load_task


def made(folder: Path, task: str, arguments: dict[str, str], shape: tuple[int, ...], dtype: str) -> Path:
    """The file, under the task's name; `shape` and `dtype` are those of an input."""
    torch.manual_seed(11)
    path = folder / f"{task.rpartition(':')[2]}.safetensors"
    model = load_task(task, arguments).model()
    save_file(model.state_dict(), path, ModelOrigin(task, arguments, shape, dtype).to_metadata())
    return path
