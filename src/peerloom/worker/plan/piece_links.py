"""Exchanges among the workers that have pieces of the same layers, within their passes.

Sums are made in the order of pieces, so all have the same bits. What is small goes from each to each at once;
of a large tensor each worker adds up a part, and gives that to the others.
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median

import torch
from torch import Tensor

from peerloom.worker.plan.stage_links import WorkerLinks
from peerloom.worker.plan.tensor_cuts import TensorCut

_SMALL_BYTES = 1 << 16
_PROBES, _PROBE_BYTES = 3, 1 << 18


@dataclass(frozen=True)
class ExchangePace:
    """An exchange takes `delay_s`, and each byte that a worker sends `byte_s` more."""

    delay_s: float
    byte_s: float


class PieceLinks:
    """The exchange of one worker in a `team` of ranks, who has the `piece` of that number.

    Each generation has links of its own: `connect` comes before all else.
    """

    _links: WorkerLinks

    def __init__(self, team: Sequence[int], piece: int) -> None:
        self._team, self.piece = list(team), piece

    def connect(self, links: WorkerLinks) -> None:
        """From now on these links are used."""
        self._links = links

    def sum(self, own: Tensor) -> Tensor:
        """The sum of what each has, with all bits the same. Raises what `ChangeLinks.result` does."""
        content = own.detach().to("cpu", memory_format=torch.contiguous_format)
        if len(self._team) == 2 or content.nbytes <= _SMALL_BYTES:
            total = _added(self._from_all(content, [content.numel()] * len(self._team)))
        else:
            total = self._sum_by_parts(content.view(-1))
        return total.view(own.shape).to(own.device)

    def join(self, own: Tensor, dim: int, cut: TensorCut) -> Tensor:
        """The pieces of all along `dim`. Raises what `ChangeLinks.result` does."""
        content = own.detach().to("cpu", memory_format=torch.contiguous_format)
        others = content.numel() // max(1, content.shape[dim])
        lengths = [cut.length(piece) for piece in range(len(self._team))]
        came = self._from_all(content, [length * others for length in lengths])
        shapes = [(*own.shape[:dim], length, *own.shape[dim + 1 :]) for length in lengths]
        pieces = [each.view(shape) for each, shape in zip(came, shapes, strict=True)]
        return torch.cat(pieces, dim).to(own.device)

    def pace(self) -> ExchangePace:
        """What exchanges take now; all call it together."""
        small, large = torch.zeros(1), torch.zeros(_PROBE_BYTES // 4)
        sent_bytes = _PROBE_BYTES if len(self._team) == 2 else 2 * _PROBE_BYTES
        delay_s = median(self._timed_s(small) for _ in range(_PROBES))
        # The first ones come before a connection has found out what its way carries.
        large_s = min(self._timed_s(large) for _ in range(_PROBES))
        return ExchangePace(delay_s, max(0.0, large_s - delay_s) / sent_bytes)

    def _timed_s(self, tensor: Tensor) -> float:
        began_s = time.perf_counter()
        self.sum(tensor)
        return time.perf_counter() - began_s

    def give(self, own: Tensor | None, like: Tensor) -> Tensor:
        """What the first of the team has, `own` there, which is of the form of `like` with all."""
        if self.piece == 0:
            assert own is not None, "who gives has it"
            self._swap(dict.fromkeys(self._team[1:], own), {})
            return own
        came = torch.empty_like(like)
        self._swap({}, {self._team[0]: came})
        return came

    def _sum_by_parts(self, content: Tensor) -> Tensor:
        parts = content.tensor_split(len(self._team))
        own = parts[self.piece]
        came = {rank: torch.empty_like(own) for rank in self._others()}
        self._swap({rank: parts[self._team.index(rank)] for rank in came}, came)
        total = _added([came.get(rank, own) for rank in self._team])
        return torch.cat(self._from_all(total, [part.numel() for part in parts]))

    def _from_all(self, own: Tensor, lengths: Sequence[int]) -> list[Tensor]:
        """What each has, in the order of pieces, flat; `lengths` are those of each."""
        flat = own.view(-1)
        came = {
            rank: flat.new_empty(length)
            for rank, length in zip(self._team, lengths, strict=True)
            if rank != self._links.rank
        }
        self._swap(dict.fromkeys(came, flat), came)
        return [came.get(rank, flat) for rank in self._team]

    def _swap(self, outgoing: Mapping[int, Tensor], incoming: Mapping[int, Tensor]) -> None:
        began_s = time.perf_counter()
        for rank, tensor in outgoing.items():
            if tensor.numel():
                self._links.post(rank, tensor.view(torch.uint8))
        coming = [
            self._links.begin_receive(rank, tensor.view(torch.uint8))
            for rank, tensor in incoming.items()
            if tensor.numel()
        ]
        for each in coming:
            self._links.result(each)
        self._links.traffic.exposed_s += time.perf_counter() - began_s

    def _others(self) -> list[int]:
        return [rank for rank in self._team if rank != self._links.rank]


def _added(values: Sequence[Tensor]) -> Tensor:
    """The sum, in the order given; of half the precision it is rounded once."""
    is_short = values[0].is_floating_point() and values[0].itemsize < 4
    total = values[0].float() if is_short else values[0].clone()
    for each in values[1:]:
        total += each
    return total.to(values[0].dtype)
