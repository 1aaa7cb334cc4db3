"""From a file that Peerloom keeps to a folder in another format, whole or not at all."""

import os
import shutil
from pathlib import Path
from tempfile import TemporaryDirectory

from peerloom.errors import InvalidArgumentError
from peerloom.model_formats.distributed_checkpoint import write_distributed
from peerloom.model_formats.hugging_face import write_hugging_face
from peerloom.model_formats.stored_file import read_stored

# What tokenizers of transformers, and what else prepares inputs, are saved as.
TOKENIZER_FILES = frozenset(
    {
        "added_tokens.json",
        "chat_template.jinja",
        "merges.txt",
        "preprocessor_config.json",
        "processor_config.json",
        "special_tokens_map.json",
        "spiece.model",
        "tokenizer.json",
        "tokenizer.model",
        "tokenizer_config.json",
        "vocab.json",
        "vocab.txt",
    }
)


def write_format(
    path: Path, digest: str, format: str, folder: Path, shard_bytes: int, brought: list[Path]
) -> None:
    """Writes the file at `path` to the new `folder`, in the format "hugging-face" or "dcp".

    A tokenizer's files in the first of the folders `brought` that has any come along. Raises DataLossError
    for bad bytes, FailedPreconditionError as the format's writer does, InvalidArgumentError where no folder
    can be made.
    """
    stored = read_stored(path, digest)
    try:
        with TemporaryDirectory(prefix=f".{folder.name}-", dir=folder.parent) as beside:
            made = Path(beside) / "made"
            if format == "dcp":
                write_distributed(stored, made)
            else:
                write_hugging_face(stored, made, shard_bytes)
                for file in tokenizer_in(brought):
                    shutil.copy(file, made)
            os.rename(made, folder)
    except OSError as error:
        limit = f"a new folder where there is room: {error.strerror or error}"
        raise InvalidArgumentError.of_field("path", str(folder), limit) from error


def tokenizer_in(folders: list[Path]) -> list[Path]:
    """The files of the first tokenizer found, those nearest to the top of the first folder that has one."""
    for folder in folders:
        found = sorted(
            (each for each in folder.rglob("*") if each.name in TOKENIZER_FILES and each.is_file()),
            key=lambda each: (len(each.parts), each),
        )
        if found:
            return [each for each in found if each.parent == found[0].parent]
    return []
