"""Only the largest values, each with its place."""

import torch

from peerloom.kit.codec_sizes import VALUE_BYTES, kept_values


class Sparsifying:
    """topk: the part `ratio` of each row's values that are largest by size; all others are 0.

    NaN counts as larger than any number, so what isn't finite is sent first.
    """

    def __init__(self, ratio: float) -> None:
        self._ratio = ratio

    def encode(self, rows: torch.Tensor) -> torch.Tensor:
        kept = kept_values(self._ratio, rows.shape[1])
        places = rows.abs().topk(kept, 1, sorted=False).indices
        values = rows.gather(1, places).float()
        return torch.cat([values.view(torch.uint8), places.to(torch.int32).view(torch.uint8)], 1)

    def decode(self, encoded: torch.Tensor, length: int) -> torch.Tensor:
        value_bytes = VALUE_BYTES * kept_values(self._ratio, length)
        values = encoded[:, :value_bytes].contiguous().view(torch.float32)
        places = encoded[:, value_bytes:].contiguous().view(torch.int32)
        # A peer that lies may put a value anywhere, but not end this process by a place that there isn't.
        inside = places.clamp(0, length - 1).long()
        return torch.zeros(len(encoded), length, device=encoded.device).scatter_(1, inside, values)
