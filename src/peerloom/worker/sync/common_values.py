"""What all ranks have last known of each value in a round of local steps, and what their codecs left out."""

from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

import torch
from torch import Tensor
from torch.nn.functional import pad

from peerloom.kit.averaged_parts import CHUNK_VALUES
from peerloom.worker.sync.bucket_layout import Gradients
from peerloom.worker.sync.codecs.casting import wide

_AnyTensor = TypeVar("_AnyTensor", bound=Tensor)
# What comes of all ranks' flat values, and what of this rank's is left out of it.
Summed = Callable[[Tensor], tuple[Tensor, Tensor]]


class CommonValues:
    """Of one round, which begins where all `parameters` are the same on all ranks.

    Parts of them are averaged while it lasts, and its end sends what has changed since they last were. What
    all have moved on by is kept by itself: a newcomer, whose start is another one, knows it as well. `owed`
    is what this rank's codecs left out before the round, by parameter, which its end adds by itself.
    """

    def __init__(self, parameters: Sequence[Tensor], owed: Gradients) -> None:
        self._parameters = parameters
        self._kinds = [_Kind(alike, owed) for alike in alike_of(parameters)]

    @torch.no_grad()
    def average(self, part: int, parts: int, weight: float, summed: Summed) -> None:
        """Gives each of `parts` chunks from `part` on the ranks' mean; `weight` is this rank's in it."""
        for kind in self._kinds:
            now, chosen = _chunks(kind.parameters), slice(part, None, parts)
            start, moved, left_out = kind.start[chosen], kind.moved[chosen], kind.left_out[chosen]
            if not len(start):
                continue
            change = (start - moved - now[chosen]).mul_(weight).add_(left_out)
            total, rest = summed(change.flatten())
            moved += total.view_as(moved)
            left_out.copy_(rest.view_as(left_out))
            now[chosen] = start - moved
            kind.put(now)

    @torch.no_grad()
    def changes(self, weight: float) -> list[Tensor]:
        """This rank's part of the mean change since then, by parameter; these are where they began again."""
        found: dict[Tensor, Tensor] = {}
        for kind in self._kinds:
            change = (kind.start - kind.moved - _chunks(kind.parameters)).mul_(weight)
            change += kind.left_out - kind.owed
            found.update(kind.divided(change))
            kind.put(kind.start)
        return [found[parameter].to(parameter.dtype) for parameter in self._parameters]

    @torch.no_grad()
    def add_moved(self) -> None:
        """Adds what all have moved on by to the sums of changes, which stand in `.grad`."""
        for kind in self._kinds:
            for parameter, moved in kind.divided(kind.moved):
                assert parameter.grad is not None, "all of them have been exchanged"
                parameter.grad += moved.to(parameter.grad.dtype)


class _Kind:
    """Parameters of one precision; a chunk of values each row, the last one filled up with zeros."""

    def __init__(self, parameters: Sequence[Tensor], owed: Gradients) -> None:
        self.parameters = parameters
        self.start = _chunks(parameters)
        self.moved = torch.zeros_like(self.start)
        self.owed = _chunks([owed.get(each, torch.zeros_like(each)) for each in parameters])
        self.left_out = self.owed.clone()

    def divided(self, chunks: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
        sizes = [each.numel() for each in self.parameters]
        values = torch.split(chunks.flatten()[: sum(sizes)], sizes)
        for parameter, own in zip(self.parameters, values, strict=True):
            yield parameter, own.view_as(parameter)

    def put(self, chunks: Tensor) -> None:
        for parameter, values in self.divided(chunks):
            parameter.copy_(values)


def _chunks(parameters: Sequence[Tensor]) -> Tensor:
    flat = wide(torch.cat([each.detach().flatten() for each in parameters]))
    return pad(flat, (0, -len(flat) % CHUNK_VALUES)).view(-1, CHUNK_VALUES)


def alike_of(parameters: Sequence[_AnyTensor]) -> Iterator[list[_AnyTensor]]:
    """Those of one precision together, in the order of their first."""
    for kind in dict.fromkeys(parameter.dtype for parameter in parameters):
        yield [parameter for parameter in parameters if parameter.dtype == kind]
