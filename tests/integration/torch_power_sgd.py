"""torch's own PowerSGD hook, told gradients by hand: what a step's sum would be by it."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

import torch
import torch.distributed as dist
from torch.distributed.algorithms.ddp_comm_hooks.powerSGD_hook import PowerSGDState, powerSGD_hook

from peerloom.worker.sync.low_rank_factors import first_directions


@dataclass
class _Bucket:
    """What the hook asks of DDP's: the only one of its step."""

    flat: torch.Tensor
    shapes: Sequence[torch.Size]

    def buffer(self) -> torch.Tensor:
        return self.flat

    def gradients(self) -> list[torch.Tensor]:
        parts = torch.split(self.flat, [shape.numel() for shape in self.shapes])
        return [part.view(shape) for part, shape in zip(parts, self.shapes, strict=True)]

    def index(self) -> int:
        return 0

    def is_last(self) -> bool:
        return True


class TorchPowerSGD:
    """The hook over all ranks, with the same first directions as ours."""

    def __init__(self, rank: int, parameters: Sequence[torch.Tensor]) -> None:
        self._shapes = [parameter.shape for parameter in parameters]
        self._state = PowerSGDState(None, rank, start_powerSGD_iter=2)
        self._state.iter = 2
        matrices = [(number, one) for number, one in enumerate(parameters) if one.dim() > 1]
        first = [first_directions(one.shape[1], rank, number, one.data) for number, one in matrices]
        self._state.p_memory_dict[0] = torch.empty(sum(len(one) * rank for _, one in matrices))
        self._state.q_memory_dict[0] = torch.cat([one.flatten() for one in first])

    def summed(self, gradients: torch.Tensor) -> torch.Tensor:
        """The ranks' sum, of this rank's flat gradients; the hook's is a mean."""
        bucket = _Bucket(gradients.clone(), self._shapes)
        done = powerSGD_hook(self._state, cast(dist.GradBucket, bucket))
        return done.wait() * dist.get_world_size()
