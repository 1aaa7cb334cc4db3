"""Half precision in forward pass and loss: torch.autocast, and for fp16 a scale for small gradients."""

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor

BF16, FP16 = "bf16", "fp16"
TYPES = {BF16: torch.bfloat16, FP16: torch.float16}


def autocast(name: str | None, device: torch.device) -> AbstractContextManager[Any]:
    """Where forward pass and loss run: `name` is a key of TYPES, or None for single precision."""
    return nullcontext() if name is None else torch.autocast(device.type, TYPES[name])


def summable(values: Tensor) -> Tensor:
    """The values, half precision widened to single: a sum of the narrow ones would lose the small."""
    return values.float() if values.dtype in TYPES.values() else values


class GradientScaler:
    """torch's GradScaler: fp16's gradients are computed times a scale, that they don't vanish.

    A step whose sum of gradients isn't finite is left out, and the scale halved; after many good ones it is
    doubled. As all ranks hold the same sum, and the same scale, they decide alike.
    """

    def __init__(self, device: torch.device) -> None:
        self._scaler = torch.amp.GradScaler(device.type)
        self._scaler.scale(torch.zeros((), device=device))  # makes the scale's tensor, which is lazy

    def scaled(self, loss: Tensor) -> Tensor:
        """The same loss; what is differentiated of it comes out times the scale."""
        if loss.requires_grad:  # the scale stays on its device: asking for it would wait for a GPU
            loss.register_hook(self._scaler.scale)  # type: ignore[no-untyped-call]
        return loss

    def unscale(self, optimisers: Sequence[torch.optim.Optimizer]) -> None:
        """Takes the scale out of the summed gradients."""
        for optimiser in optimisers:
            self._scaler.unscale_(optimiser)

    def step(self, optimisers: Sequence[torch.optim.Optimizer]) -> None:
        """The optimisers' steps, but for those with a gradient that isn't finite; and the next scale."""
        for optimiser in optimisers:
            self._scaler.step(optimiser)
        self._scaler.update()

    def state(self) -> dict[str, Any]:
        """The scale, and how many steps it has been good for."""
        return self._scaler.state_dict()

    def load(self, state: dict[str, Any]) -> None:
        """Takes over what another worker's `state` gave."""
        self._scaler.load_state_dict(state)
