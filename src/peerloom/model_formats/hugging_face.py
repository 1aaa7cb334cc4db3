"""A model as `from_pretrained` takes it: its config beside safetensors; an adapter as peft has it."""

import json
from collections.abc import Mapping
from pathlib import Path

from safetensors.torch import save_file
from torch.distributed.checkpoint import HuggingFaceStorageWriter

from peerloom.errors import FailedPreconditionError
from peerloom.model_formats.distributed_checkpoint import save_alone
from peerloom.model_formats.stored_file import StoredFile
from peerloom.worker.model_config import ADAPTER_KEY


def write_hugging_face(stored: StoredFile, folder: Path, shard_bytes: int) -> None:
    """Writes the model into the new `folder`, in files of at most `shard_bytes` unless one tensor is larger.

    An adapter becomes one file. Raises FailedPreconditionError for a model whose file has no config; OSError
    without room.
    """
    if stored.config is None:
        raise FailedPreconditionError(
            "The file doesn't say what model it is of: those of models with a config of transformers do, and "
            "of adapters by peft. Take the format safetensors or dcp, and load that into the model that you "
            "trained.",
            reason="MODEL_WITHOUT_CONFIG",
        )
    folder.mkdir()
    is_adapter = ADAPTER_KEY in stored.config
    name = "adapter_config.json" if is_adapter else "config.json"
    (folder / name).write_text(json.dumps(stored.config, indent=2) + "\n")
    if is_adapter:
        save_file(dict(stored.tensors), folder / "adapter_model.safetensors", {"format": "pt"})
        return
    shards = shards_of({name: tensor.nbytes for name, tensor in stored.tensors.items()}, shard_bytes)
    save_alone(dict(stored.tensors), HuggingFaceStorageWriter(str(folder), shards))


def shards_of(sizes: Mapping[str, int], shard_bytes: int) -> dict[str, int]:
    """In which file, from 1, each tensor goes: in order, one more where it would be too large."""
    shards: dict[str, int] = {}
    number, filled = 1, 0
    for name, size_bytes in sizes.items():
        if filled and filled + size_bytes > shard_bytes:
            number, filled = number + 1, 0
        shards[name] = number
        filled += size_bytes
    return shards
