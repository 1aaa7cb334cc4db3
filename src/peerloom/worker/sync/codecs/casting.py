"""Values in a floating-point type, the gradients' own or a shorter one."""

import torch


class Casting:
    """Each value by itself, rounded to `dtype`."""

    def __init__(self, dtype: torch.dtype) -> None:
        self._dtype = dtype

    def encode(self, rows: torch.Tensor) -> torch.Tensor:
        return rows.to(self._dtype).contiguous().view(torch.uint8)

    def decode(self, encoded: torch.Tensor, length: int) -> torch.Tensor:
        return wide(encoded.contiguous().view(self._dtype))


def wide(values: torch.Tensor) -> torch.Tensor:
    """Values in which to add: at least single precision."""
    return values if values.dtype == torch.float64 else values.float()
