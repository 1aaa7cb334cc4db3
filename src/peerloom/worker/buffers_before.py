"""A model's buffers as they were before a batch or a round, whose forward passes change them at once."""

import torch
from torch import nn


class BuffersBefore:
    """Copies of the buffers of a `model`, of now."""

    def __init__(self, model: nn.Module) -> None:
        self._model = model
        self._copies = {name: buffer.detach().clone() for name, buffer in model.named_buffers()}

    @torch.no_grad()
    def put_back(self) -> None:
        """Has them be again what they were."""
        for name, buffer in self._model.named_buffers():
            if name in self._copies:
                buffer.copy_(self._copies[name])
