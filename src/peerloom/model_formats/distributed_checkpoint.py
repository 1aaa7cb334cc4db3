"""A model or a checkpoint for torch.distributed.checkpoint: loadable into a plain model and its optimiser."""

import warnings
from pathlib import Path
from typing import Any

from torch.distributed.checkpoint import FileSystemWriter, StorageWriter, save

from peerloom.model_formats.stored_file import StoredFile


def write_distributed(stored: StoredFile, folder: Path) -> None:
    """Writes "model" into the new `folder`, and of a checkpoint "optimizer" and "step"; OSError without room.

    The optimiser's state is that of torch's `get_optimizer_state_dict`.
    """
    state: dict[str, Any] = {"model": dict(stored.tensors)}
    if stored.step is not None:
        state |= {"optimizer": dict(stored.optimiser), "step": stored.step}
    save_alone(state, FileSystemWriter(folder))


def save_alone(state: dict[str, Any], writer: StorageWriter) -> None:
    """Has torch write a state from this process, in which no group is at work."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "torch.distributed is disabled", UserWarning)  # as is meant here
        save(state, storage_writer=writer, no_dist=True)
