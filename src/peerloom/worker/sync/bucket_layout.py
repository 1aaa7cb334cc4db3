"""Where gradients stand in what DDP sends at once: the same values by bucket and by parameter."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate

import torch
import torch.distributed as dist
from torch.nn.functional import pad

Gradients = Mapping[torch.Tensor, torch.Tensor]  # by parameter
Place = tuple[torch.Tensor, torch.Size, tuple[int, ...], int]  # a parameter, size, stride and offset


@dataclass(frozen=True, eq=False)
class Layout:
    """Where the gradients of a bucket's parameters stand in it: size, stride and offset of each."""

    length: int
    places: tuple[Place, ...]

    @classmethod
    def of(cls, bucket: dist.GradBucket) -> "Layout":
        """A bucket's layout; DDP makes others after the first step."""
        buffer = bucket.buffer()
        views = zip(bucket.parameters(), bucket.gradients(), strict=True)
        places = tuple(
            (parameter, view.size(), view.stride(), int(view.storage_offset() - buffer.storage_offset()))
            for parameter, view in views
        )
        return cls(buffer.numel(), places)

    @classmethod
    def packed(cls, places: Sequence[Place]) -> "Layout":
        """Of some of a bucket's parameters, one behind the other."""
        ends = list(accumulate(size.numel() for _, size, _, _ in places))
        starts = zip(places, [0, *ends], strict=False)
        return cls(ends[-1], tuple((*place[:3], start) for place, start in starts))

    def flat(self, gradients: Gradients) -> torch.Tensor:
        """The bucket [length], if the gradients were these; 0 where there is none."""
        first = self.places[0][0]
        dtype = gradients[first].dtype if first in gradients else first.dtype
        flat = torch.zeros(self.length, dtype=dtype, device=first.device)
        for parameter, size, stride, offset in self.places:
            if parameter in gradients:
                flat.as_strided(size, stride, offset).copy_(gradients[parameter])
        return flat

    def by_parameter(self, flat: torch.Tensor) -> Gradients:
        """Views of a bucket [length], by parameter."""
        first = int(flat.storage_offset())
        return {
            parameter: flat.as_strided(size, stride, first + offset)
            for parameter, size, stride, offset in self.places
        }

    def part(self, gradients: Gradients, rank: int, ranks: int) -> torch.Tensor:
        """The `rank`-th of `ranks` parts of the bucket, if the gradients were these."""
        return pad(self.flat(gradients), (0, -self.length % ranks)).view(ranks, -1)[rank]
