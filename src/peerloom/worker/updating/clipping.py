"""Clipping by the norm of the whole gradient (Pascanu et al., ICML 2013), on all ranks to the same bits.

torch's own sums in an order that depends on the processor's vectors, the number of threads and how the
gradients lie in memory, none of which ranks share. Here the square of a float32 is exact in float64, squares
are added in pairs by operations on elements, and the sums of parts exactly.
"""

import math
from collections.abc import Iterable

import torch
from torch import Tensor

EPSILON = 1e-6  # torch's own: a gradient of nothing stays so
PART = 1 << 18  # values at once, so that their squares take 2 MB and not twice a large tensor's memory


def clip_gradients(
    parameters: Iterable[torch.nn.Parameter], largest_norm: float, norm: float | None = None
) -> float:
    """Scales the gradients in place so that their norm is at most `largest_norm`; returns what it was.

    `norm` is that of the whole gradient, where these are a part of it. As torch.nn.utils.clip_grad_norm_:
    with a norm of NaN all become NaN, with an infinite one 0 or NaN.
    """
    gradients = gradients_of(parameters)
    if norm is None:
        norm = global_norm(gradients)
    factor = largest_norm / (norm + EPSILON)
    if not factor >= 1.0:  # NaN goes on
        for gradient in gradients:
            gradient.mul_(factor)
    return norm


def gradients_of(parameters: Iterable[torch.nn.Parameter]) -> list[Tensor]:
    """What a backward pass has left in them."""
    return [each.grad for each in parameters if each.grad is not None]


def global_norm(tensors: list[Tensor]) -> float:
    """The length of the vector that all tensors together are; 0 of none."""
    return math.sqrt(sum_of_squares(tensors))


def sum_of_squares(tensors: list[Tensor]) -> float:
    """Of all their values; 0 of none."""
    if not tensors:
        return 0.0
    parts = [part for each in tensors for part in torch.split(each.detach().flatten(), PART)]
    return math.fsum(torch.stack([_sum_of_squares(part) for part in parts]).tolist())


def _sum_of_squares(flat: Tensor) -> Tensor:
    values = flat.to(torch.float64, copy=True)
    values.mul_(values)
    count = len(values)
    while count > 1:
        half = count // 2
        values[:half].add_(values[half : 2 * half])
        if count % 2:
            values[0].add_(values[count - 1])
        count = half
    return values[:1].sum()
