"""Raw inputs become a model's tensor: by the same operations when it is trained and when it answers."""

import torch
from torch import Tensor

from peerloom.kit.raw_input import RawInput, ScaleShift, Standardise, Vocabulary
from peerloom.worker.batches import Nest


def prepared(inputs: Nest, raw: RawInput | None) -> Nest:
    """The tensor [n, *shape] of raw inputs; they stay as they are where nothing is declared of them.

    So do several tensors: a declaration is of one, and `check_declaration` refuses it for others.
    """
    if raw is None or not isinstance(inputs, Tensor):
        return inputs
    match raw.transform:
        case Standardise(mean, deviation, divisor):
            scaled = inputs.float() / divisor
            return (scaled - _spread(mean, raw)) / _spread(deviation, raw)
        case ScaleShift(scale, shift):
            return torch.addcmul(_spread(shift, raw), inputs.float(), _spread(scale, raw))
        case Vocabulary():
            return inputs.long()
    return inputs


def _spread(numbers: tuple[float, ...], raw: RawInput) -> Tensor:
    """The numbers as a float32 tensor that fits samples: one for all, for each channel, or for each value."""
    tensor = torch.tensor(numbers, dtype=torch.float32)
    if len(numbers) == 1:
        return tensor
    each_channel = len(numbers) == raw.shape[0]
    return tensor.view(-1, *[1] * (len(raw.shape) - 1)) if each_channel else tensor.view(raw.shape)
