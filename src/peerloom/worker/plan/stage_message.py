"""A tensor on its way between stages: what is announced of it, and its values, as they are or by a codec."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from peerloom.errors import InvalidArgumentError
from peerloom.kit.codec_sizes import encoded_bytes, is_worth_encoding
from peerloom.kit.parallel_plan import ACTIVATION_CODECS
from peerloom.kit.sync_method import NONE, SyncMethod
from peerloom.worker.sync.codecs import Codec, codec_of
from peerloom.worker.tensor_types import TENSOR_TYPES

_TYPES = list(TENSOR_TYPES.values())
MOST_DIMENSIONS = 12
FORM_NUMBERS = 2 + MOST_DIMENSIONS


@dataclass(frozen=True)
class TensorForm:
    """What is announced of a tensor before its values come; `codec` is one of ACTIVATION_CODECS.

    `wants_gradient`: the sender needs the loss's gradient for it.
    """

    dtype: torch.dtype
    shape: tuple[int, ...]
    wants_gradient: bool
    codec: str = NONE

    @classmethod
    def of(cls, tensor: Tensor, wants_gradient: bool, codec: str = NONE) -> "TensorForm":
        """That of a tensor, which goes by `codec` if it has floating-point numbers and gets shorter so.

        Raises InvalidArgumentError for one of an unusual type.
        """
        if tensor.dtype not in _TYPES or tensor.dim() > MOST_DIMENSIONS:
            found = f"{str(tensor.dtype).removeprefix('torch.')} of {tensor.dim()} dimensions"
            limit = f"a tensor of {', '.join(TENSOR_TYPES)} of at most {MOST_DIMENSIONS} dimensions"
            raise InvalidArgumentError.of_field("what goes from stage to stage", found, limit)
        is_shorter = is_worth_encoding(SyncMethod(codec=codec), tensor.numel(), tensor.element_size())
        used = codec if tensor.is_floating_point() and is_shorter else NONE
        return cls(tensor.dtype, tuple(tensor.shape), wants_gradient, used)

    @classmethod
    def of_numbers(cls, numbers: Tensor) -> "TensorForm":
        """What `to_numbers` told. Raises RuntimeError for other numbers."""
        code, dimensions, *shape = numbers.tolist()
        kinds = len(ACTIVATION_CODECS) * len(_TYPES)
        if not (0 <= code < 2 * kinds and 0 <= dimensions <= MOST_DIMENSIONS and min(shape) >= 0):
            raise RuntimeError(f"worker mesh: a stage announced no tensor but {numbers.tolist()}")
        codec, kind = divmod(code // 2, len(_TYPES))
        return cls(_TYPES[kind], tuple(shape[:dimensions]), bool(code % 2), ACTIVATION_CODECS[codec])

    def to_numbers(self) -> Tensor:
        """As numbers, int64 [FORM_NUMBERS]."""
        kind = ACTIVATION_CODECS.index(self.codec) * len(_TYPES) + _TYPES.index(self.dtype)
        numbers = [2 * kind + self.wants_gradient, len(self.shape), *self.shape]
        return torch.tensor(numbers + [0] * (FORM_NUMBERS - len(numbers)))

    @property
    def values(self) -> int:
        """How many the tensor has."""
        return math.prod(self.shape)


def encoded(tensor: Tensor, codec: str) -> Tensor:
    """What is sent of a contiguous tensor: itself, or its values by a codec, uint8 [b]."""
    if codec == NONE:
        return tensor
    return _codec(codec, tensor.numel(), tensor.dtype).encode(tensor.view(1, -1))[0]


def empty_content(form: TensorForm) -> Tensor:
    """A place for what `encoded` gives."""
    if form.codec == NONE:
        return torch.empty(form.shape, dtype=form.dtype)
    size_bytes = encoded_bytes(SyncMethod(codec=form.codec), form.values, form.dtype.itemsize)
    return torch.empty(size_bytes, dtype=torch.uint8)


def decoded(content: Tensor, form: TensorForm) -> Tensor:
    """The tensor, with the values that its codec kept."""
    if form.codec == NONE:
        return content
    values = _codec(form.codec, form.values, form.dtype).decode(content[None], form.values)
    return values.view(form.shape).to(form.dtype)


def _codec(codec: str, values: int, dtype: torch.dtype) -> Codec:
    return codec_of(SyncMethod(codec=codec), values, dtype)
