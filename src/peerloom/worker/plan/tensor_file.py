"""A safetensors file, written and read a tensor at a time: no worker has to hold all that is in it."""

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from io import BufferedReader
from pathlib import Path
from typing import Any, BinaryIO

import torch
from torch import Tensor

from peerloom.kit.safetensors_file import read_header
from peerloom.worker.tensor_types import TENSOR_TYPE_NAMES, TENSOR_TYPES


@dataclass(frozen=True)
class TensorEntry:
    """A tensor of the file: its name, its type as safetensors calls it, and its shape."""

    name: str
    dtype: str
    shape: tuple[int, ...]

    @property
    def size_bytes(self) -> int:
        """Bytes of its values."""
        size: int = torch.Size(self.shape).numel() * TENSOR_TYPES[self.dtype].itemsize
        return size


def entry_of(name: str, tensor: Tensor) -> TensorEntry:
    """The entry of a tensor. Raises KeyError for a type that no safetensors file has."""
    return TensorEntry(name, TENSOR_TYPE_NAMES[tensor.dtype], tuple(tensor.shape))


def in_file_order(entries: Iterable[TensorEntry]) -> list[TensorEntry]:
    """As the library writes them: the widest types first, so that all are aligned, then by name."""
    return sorted(entries, key=lambda entry: (-TENSOR_TYPES[entry.dtype].itemsize, entry.dtype, entry.name))


def read_tensors(
    path: Path,
    is_wanted: Callable[[str], bool],
    taken: Callable[[str, Tensor], Tensor] = lambda name, tensor: tensor,
) -> dict[str, Tensor]:
    """The tensors of a file by whose names they are wanted, or what is `taken` of each.

    The library maps the whole file, which counts as memory of this process where that is limited. Raises
    OSError, KeyError, RecursionError, TypeError and ValueError for what is no such file.
    """
    with path.open("rb") as file:
        header, start = read_header(file)
        size_bytes = path.stat().st_size - start
        return {
            name: taken(name, _read(file, start, size_bytes, told))
            for name, told in header.items()
            if name != "__metadata__" and is_wanted(name)
        }


def _read(file: BufferedReader, start: int, size_bytes: int, told: Mapping[str, Any]) -> Tensor:
    entry = TensorEntry("", told["dtype"], tuple(told["shape"]))
    first, end = told["data_offsets"]
    if end - first != entry.size_bytes or not 0 <= first <= end <= size_bytes:
        raise ValueError(f"bytes {first} to {end} can't be {told['dtype']} {list(entry.shape)}")
    content = torch.empty(entry.size_bytes, dtype=torch.uint8)
    file.seek(start + first)
    if file.readinto(content.numpy().data) != entry.size_bytes:
        raise ValueError("the file ends within a tensor")
    return content.view(TENSOR_TYPES[entry.dtype]).view(entry.shape)


class TensorFile:
    """Writes `entries`, in their order, into a file at `path`, with its `metadata`."""

    def __init__(self, path: Path, entries: Iterable[TensorEntry], metadata: Mapping[str, str]) -> None:
        self._left = list(entries)
        self._path = path
        self._metadata = dict(metadata)
        self._file: BinaryIO | None = None

    def begin(self) -> None:
        """Opens the file and writes its header. Raises OSError."""
        header: dict[str, object] = {"__metadata__": self._metadata} if self._metadata else {}
        end = 0
        for entry in self._left:
            start, end = end, end + entry.size_bytes
            header[entry.name] = {"dtype": entry.dtype, "shape": entry.shape, "data_offsets": [start, end]}
        text = json.dumps(header, separators=(",", ":")).encode()
        text += b" " * (-len(text) % 8)
        self._file = self._path.open("wb")
        self._file.write(len(text).to_bytes(8, "little") + text)

    def write(self, tensor: Tensor) -> None:
        """The next entry's values. Raises ValueError for another type or shape than it announced, OSError."""
        assert self._file is not None, "it was begun"
        entry = self._left.pop(0)
        if entry_of(entry.name, tensor) != entry:
            raise ValueError(f"{entry} was announced, and {list(tensor.shape)} {tensor.dtype} came")
        if tensor.numel():
            content = tensor.detach().cpu().contiguous().view(-1).view(torch.uint8)
            self._file.write(content.numpy().data)

    def end(self) -> None:
        """Closes the file, whole or not. Raises OSError when what was written has no room."""
        if self._file is not None:
            self._file.close()
