"""What all ranks have last known of each value in a round of local steps, and what their codecs left out."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

import torch
from torch import Tensor

from peerloom.worker.sync.bucket_layout import Gradients
from peerloom.worker.sync.owned_sum import OwnedSum
from peerloom.worker.sync.parameter_chunks import ParameterChunks

_AnyTensor = TypeVar("_AnyTensor", bound=Tensor)
BeginSum = Callable[[Tensor], OwnedSum]  # of all ranks' flat values


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
    def begin(self, part: int, parts: int, weight: float, begin_sum: BeginSum) -> "PartUnderWay":
        """Has each of `parts` chunks from `part` on travel to become the ranks' mean.

        `weight` is this rank's in it. No other part may travel meanwhile.
        """
        chosen, travelling = slice(part, None, parts), []
        for kind in self._kinds:
            now = kind.chunks.read(part, parts)
            if not len(now):
                continue
            change = (kind.start[chosen] - kind.moved[chosen] - now).mul_(weight).add_(kind.left_out[chosen])
            travelling.append((kind, now, begin_sum(change.flatten())))
        return PartUnderWay(part, parts, travelling)

    @torch.no_grad()
    def changes(self, weight: float) -> list[Tensor]:
        """This rank's part of the mean change since then, by parameter; these are where they began again."""
        found: dict[Tensor, Tensor] = {}
        for kind in self._kinds:
            change = (kind.start - kind.moved - kind.chunks.read()).mul_(weight)
            change += kind.left_out - kind.owed
            found.update(kind.chunks.divided(change))
            kind.chunks.write(kind.start)
        return [found[parameter].to(parameter.dtype) for parameter in self._parameters]

    @torch.no_grad()
    def add_moved(self) -> None:
        """Adds what all have moved on by to the sums of changes, which stand in `.grad`."""
        for kind in self._kinds:
            for parameter, moved in kind.chunks.divided(kind.moved):
                assert parameter.grad is not None, "all of them have been exchanged"
                parameter.grad += moved.to(parameter.grad.dtype)


@dataclass(frozen=True, eq=False)
class PartUnderWay:
    """Chunks that travel: of each precision their values when that began, and the sum."""

    _part: int
    _parts: int
    _travelling: list[tuple["_Kind", Tensor, OwnedSum]]

    @torch.no_grad()
    def end(self) -> None:
        """Gives them the ranks' mean, and what this rank has changed meanwhile. Raises what the sum does."""
        chosen = slice(self._part, None, self._parts)
        for kind, before, under_way in self._travelling:
            moved, total = kind.moved[chosen], under_way.total()
            moved += total.view_as(moved)
            # What isn't finite has been told as such, and would come back each time.
            rest = under_way.left_out().nan_to_num(nan=0.0, posinf=0.0, neginf=0.0)
            kind.left_out[chosen] = rest.view_as(moved)
            # In this order all have the same bits where nothing has changed meanwhile: the difference is 0.
            changed = kind.chunks.read(self._part, self._parts) - before
            kind.chunks.write(kind.start[chosen] - moved + changed, self._part, self._parts)


class _Kind:
    """Parameters of one precision; all else is by their chunks."""

    def __init__(self, parameters: Sequence[Tensor], owed: Gradients) -> None:
        self.chunks = ParameterChunks(parameters)
        self.start = self.chunks.read()
        self.moved = torch.zeros_like(self.start)
        self.owed = ParameterChunks([owed.get(each, torch.zeros_like(each)) for each in parameters]).read()
        self.left_out = self.owed.clone()


def alike_of(parameters: Sequence[_AnyTensor]) -> Iterator[list[_AnyTensor]]:
    """Those of one precision together, in the order of their first."""
    for kind in dict.fromkeys(parameter.dtype for parameter in parameters):
        yield [parameter for parameter in parameters if parameter.dtype == kind]
