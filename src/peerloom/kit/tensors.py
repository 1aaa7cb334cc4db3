"""Arrays as messages and back: plain numbers with a type and a shape, checked before they are believed."""

import math
import sys

import numpy as np
import numpy.typing as npt

from peerloom.errors import InvalidArgumentError
from peerloom.kit.raw_input import NUMBER_TYPES
from peerloom.v1.inference_pb2 import Tensor

Array = npt.NDArray[np.generic]
LIMIT_BYTES = 3 * 1024 * 1024
_MOST_DIMENSIONS = 8


def message_of(array: Array, field: str = "inputs") -> Tensor:
    """The array as a message. Raises InvalidArgumentError naming `field` for other types or over 3 MiB."""
    if array.dtype.name not in NUMBER_TYPES:
        raise InvalidArgumentError.of_field(
            f"{field}.dtype", array.dtype.name, f"one of {', '.join(NUMBER_TYPES)}"
        )
    if array.nbytes > LIMIT_BYTES:
        raise InvalidArgumentError.of_field(
            field, f"{array.nbytes:,} bytes", f"at most {LIMIT_BYTES:,} bytes"
        )
    if array.ndim > _MOST_DIMENSIONS:
        raise InvalidArgumentError.of_field(
            f"{field}.shape", list(array.shape), f"at most {_MOST_DIMENSIONS} long"
        )
    return Tensor(dtype=array.dtype.name, shape=array.shape, content=_little(array).tobytes())


def array_of(tensor: Tensor, field: str = "inputs") -> Array:
    """The message as an array of its own memory.

    Raises InvalidArgumentError naming `field` when type, shape and content don't agree.
    """
    if tensor.dtype not in NUMBER_TYPES:
        raise InvalidArgumentError.of_field(
            f"{field}.dtype", tensor.dtype[:32], f"one of {', '.join(NUMBER_TYPES)}"
        )
    if len(tensor.shape) > _MOST_DIMENSIONS:
        raise InvalidArgumentError.of_field(
            f"{field}.shape", list(tensor.shape)[:16], f"at most {_MOST_DIMENSIONS} long"
        )
    dtype = np.dtype(tensor.dtype)
    expected_bytes = math.prod(tensor.shape) * dtype.itemsize
    if len(tensor.content) != expected_bytes:
        limit = f"{expected_bytes:,} bytes long for {tensor.dtype}{list(tensor.shape)}"
        raise InvalidArgumentError.of_field(f"{field}.content", f"{len(tensor.content):,} bytes", limit)
    # A copy: what protobuf holds can't be written to, and torch shares the memory of what it is given.
    array = np.frombuffer(tensor.content, dtype.newbyteorder("<")).astype(dtype, copy=True)
    return array.reshape(tuple(tensor.shape))


def check_finite(array: Array, field: str = "inputs") -> None:
    """Raises InvalidArgumentError naming the first place that holds NaN or infinity."""
    if array.dtype.kind != "f":
        return
    bad = np.argwhere(~np.isfinite(array))
    if len(bad):
        place = ", ".join(str(index) for index in bad[0])
        raise InvalidArgumentError(
            f"{field}[{place}] is {array[tuple(bad[0])]}: a model's answer to that means nothing "
            f"({len(bad):,} of {array.size:,} numbers aren't finite).",
            reason="NOT_FINITE",
            metadata={"field": field},
        )


def _little(array: Array) -> Array:
    return array.byteswap() if sys.byteorder == "big" else array
