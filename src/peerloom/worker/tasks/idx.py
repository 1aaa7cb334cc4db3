"""Reads IDX files of bytes, the format of MNIST, and believes nothing that they say.

An IDX file is two zero bytes, a byte for the type of its values (8: unsigned bytes), a byte for the number of
dimensions, each dimension as a big-endian 32-bit number, then the values (LeCun, Cortes, Burges: the MNIST
database). It may be compressed with gzip, whatever its name.
"""

import gzip
import struct
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import BinaryIO

import numpy as np
import numpy.typing as npt

from peerloom.errors import DataLossError, FailedPreconditionError, NotFoundError
from peerloom.worker.data_roots import inside

_GZIP = b"\x1f\x8b"
_UNSIGNED_BYTES = 8
_MOST_BYTES = 2**31


def find_file(folder: Path, names: Sequence[str]) -> Path:
    """The first of `names`, plain or with .gz, in `folder`; NotFoundError names all that were looked for.

    Raises PermissionDeniedError for a link that leads out of the folder.
    """
    candidates = [f"{name}{ending}" for name in names for ending in ("", ".gz")]
    for candidate in candidates:
        if (folder / candidate).is_file():
            return inside(folder, folder / candidate)
    raise NotFoundError(
        f"The folder {folder} holds none of {', '.join(candidates)}. "
        "Name the one with these files, on each node.",
        reason="DATA_FILE_NOT_FOUND",
        metadata={"folder": str(folder), "names": ",".join(candidates)},
    )


def read_images(path: Path, rows: int, columns: int) -> npt.NDArray[np.uint8]:
    """Images [n, rows, columns], at least one.

    Raises DataLossError for a file that isn't whole or holds something else.
    """
    images = read_idx(path, 3)
    if images.shape[1:] != (rows, columns):
        found = " x ".join(str(size) for size in images.shape[1:])
        raise DataLossError(f"{path} holds images of {found} pixels, expected {rows} x {columns}.")
    return images


def read_labels(path: Path, classes: int) -> npt.NDArray[np.uint8]:
    """Labels [n] from 0 to `classes` - 1, at least one; else as read_images."""
    labels = read_idx(path, 1)
    wrong = np.flatnonzero(labels >= classes)
    if len(wrong):
        first = f"the first at {wrong[0]}: {labels[wrong[0]]}"
        raise DataLossError(f"{path} holds {len(wrong)} labels outside 0 to {classes - 1}, {first}.")
    return labels


def read_idx(path: Path, dimensions: int) -> npt.NDArray[np.uint8]:
    """The bytes of an IDX file as an array of so many `dimensions`, none of size 0, at most 2 GiB in all.

    Raises DataLossError naming the file, what was found and what was expected; FailedPreconditionError
    when the system doesn't let us read it.
    """
    try:
        with path.open("rb") as plain:
            is_compressed = plain.read(2) == _GZIP
            plain.seek(0)
            if not is_compressed:
                return _parse(path, plain, dimensions)
            with gzip.open(plain) as unpacked:
                return _parse(path, unpacked, dimensions)
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise DataLossError(f"{path} is damaged: gzip says {error}. Get the file again.") from error
    except OSError as error:
        raise FailedPreconditionError(f"{path} can't be read: {error.strerror or error}.") from error


def _parse(path: Path, stream: BinaryIO | gzip.GzipFile, dimensions: int) -> npt.NDArray[np.uint8]:
    shape = _read_shape(path, stream, dimensions)
    size = 1
    for each in shape:
        size *= each
    if not 0 < size <= _MOST_BYTES:
        found = " x ".join(str(each) for each in shape)
        raise DataLossError(f"{path} claims {found} bytes, expected 1 to {_MOST_BYTES:,}.")
    # One byte more than the header promises tells a file that is too long, without reading all of it.
    body = stream.read(size + 1)
    if len(body) != size:
        found = f"more than {size:,}" if len(body) > size else f"{len(body):,}"
        raise DataLossError(
            f"{path} holds {found} bytes after its header, expected {size:,}. Get the file again."
        )
    return np.frombuffer(body, dtype=np.uint8).reshape(shape).copy()


def _read_shape(path: Path, stream: BinaryIO | gzip.GzipFile, dimensions: int) -> tuple[int, ...]:
    magic = stream.read(4)
    expected = bytes((0, 0, _UNSIGNED_BYTES, dimensions))
    if magic != expected:
        found = magic.hex(" ") or "nothing"
        raise DataLossError(
            f"{path} begins with {found}, expected {expected.hex(' ')}: not the right IDX file."
        )
    header = stream.read(4 * dimensions)
    if len(header) != 4 * dimensions:
        raise DataLossError(f"{path} ends in its header after {4 + len(header)} bytes. Get the file again.")
    return struct.unpack(f">{dimensions}I", header)
