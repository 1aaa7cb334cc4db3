"""A model's safetensors file, read without torch: one digest stands for all of its parameters."""

import hashlib
import json
from pathlib import Path
from typing import Any, BinaryIO

from peerloom.errors import DataLossError, InvalidArgumentError
from peerloom.kit.checks import check_range, check_text
from peerloom.kit.raw_input import RawInput, raw_input_from_json

METADATA_KEY = "peerloom"
LONGEST_ORIGIN = 262_144  # characters of what a file says of its model
# The library's own limit is 100 MB, which takes gigabytes when it is read.
HEADER_LIMIT_BYTES = 8 << 20  # 80,000 tensors
_CHUNK_BYTES = 1 << 20


def parameters_digest(file: BinaryIO) -> str:
    """SHA-256 over name, type, shape and bytes of each tensor but the buffers that the metadata name.

    Workers with equal parameters have equal digests, though their buffers (running means) may differ. No
    parameter can be passed off as a buffer: its name would be missing in the digest. Raises DataLossError
    for a file that isn't safetensors.
    """
    try:
        return _digest(file)
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError, RecursionError) as error:
        raise DataLossError(f"it isn't a safetensors file: {type(error).__name__}: {error}") from error


def check_header(path: Path) -> None:
    """Raises InvalidArgumentError for a file whose header is too long to be read."""
    with path.open("rb") as file:
        size_bytes = int.from_bytes(file.read(8), "little")
    # Of a file that isn't safetensors the first bytes are anything, and the library says so.
    if HEADER_LIMIT_BYTES < size_bytes < path.stat().st_size:
        check_range("header's size", size_bytes, 2, HEADER_LIMIT_BYTES)


def check_parameters(path: Path, agreed: str) -> RawInput | None:
    """What raw inputs the model in a file takes, if it says so.

    Raises DataLossError unless the file holds the parameters that this digest stands for, and when what it
    says of its inputs can't be believed.
    """
    with path.open("rb") as file:
        found = parameters_digest(file)
        declared = _declared(file)
    if found != agreed:
        raise DataLossError(
            f"its parameters ({found[:12]}) are not those that the workers agreed on ({agreed[:12]})",
            reason="MODEL_DIFFERS",
        )
    return declared


def _digest(file: BinaryIO) -> str:
    header, begin = read_header(file)
    buffers = _buffers(header.pop("__metadata__", {}))
    sha = hashlib.sha256()
    for name in sorted(header.keys() - buffers):
        tensor = header[name]
        first, end = (int(offset) for offset in tensor["data_offsets"])
        sha.update(json.dumps([name, str(tensor["dtype"]), tensor["shape"], end - first]).encode() + b"\n")
        file.seek(begin + first)
        left_bytes = end - first
        while left_bytes:
            chunk = file.read(min(left_bytes, _CHUNK_BYTES))
            if not chunk:
                raise ValueError(f"it ends within {name!r}")
            sha.update(chunk)
            left_bytes -= len(chunk)
    return sha.hexdigest()


def read_header(file: BinaryIO) -> tuple[dict[str, Any], int]:
    """The header, and where the tensors' bytes begin. Raises ValueError for a file that isn't safetensors."""
    size_bytes = int.from_bytes(file.read(8), "little")
    if not 2 <= size_bytes <= HEADER_LIMIT_BYTES:
        raise ValueError(f"its header has {size_bytes:,} bytes")
    header = json.loads(file.read(size_bytes))
    if not isinstance(header, dict):
        raise ValueError("its header isn't an object")
    return header, 8 + size_bytes


def _declared(file: BinaryIO) -> RawInput | None:
    file.seek(0)
    header, _ = read_header(file)
    try:
        text = header.get("__metadata__", {}).get(METADATA_KEY, "{}")
        check_text(METADATA_KEY, text, high=LONGEST_ORIGIN)
        written = json.loads(text)
        return raw_input_from_json(written["raw_input"]) if written.get("raw_input") else None
    except (InvalidArgumentError, ValueError, TypeError, AttributeError, RecursionError) as error:
        raise DataLossError(f"what it says of its inputs can't be believed: {error}") from error


def _buffers(metadata: Any) -> set[str]:
    written = json.loads(metadata[METADATA_KEY]) if METADATA_KEY in metadata else {}
    return {str(name) for name in written.get("buffers", ())}
