"""Data that can only be read in order, in shards: where each sample of an epoch stands, whoever reads it.

An epoch takes so many samples of each shard, in turns: the first of each, then the second. So a position of
the epoch names a place in a shard, and the ledger of positions is one of samples. Within a
batch positions are put in the shards' order: a worker's share is a few shards, which it reads in sequence.
"""

from abc import ABC, abstractmethod
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from peerloom.errors import InvalidArgumentError

MOST_PASSED_OVER = 1024  # samples that are read for nothing, before a shard is rather opened anew


class Sharded(ABC):
    """Training data without an index: override `read`.

    `shard_samples` says how many samples an epoch takes of each shard. All workers say the same, and a shard
    gives the same samples in the same order whoever reads it. Raises InvalidArgumentError for other numbers.

    In federated rounds a worker reads one shard alone. Where its node has only one, `own_shard` is that.
    """

    own_shard: int | None = None

    def __init__(self, shard_samples: Sequence[int]) -> None:
        if not shard_samples or any(not isinstance(each, int) or each < 1 for each in shard_samples):
            limit = "a whole number from 1 for each shard"
            raise InvalidArgumentError.of_field("shard_samples", list(shard_samples), limit)
        self.shard_samples = tuple(shard_samples)

    def __len__(self) -> int:
        return sum(self.shard_samples)

    @abstractmethod
    def read(self, shard: int, epoch: int, first: int) -> Iterator[Any]:
        """The samples of a shard (from 0) in an epoch (from 0), from number `first` on."""

    def only(self, shard: int) -> "Sharded":
        """One shard alone. Raises InvalidArgumentError for one that isn't there."""
        if not 0 <= shard < len(self.shard_samples):
            limit = f"a shard from 0 to {len(self.shard_samples) - 1}"
            raise InvalidArgumentError.of_field("own_shard", shard, limit)
        return _OneShard(self, shard)


class _OneShard(Sharded):
    def __init__(self, data: Sharded, shard: int) -> None:
        super().__init__([data.shard_samples[shard]])
        self._data, self._shard = data, shard

    def read(self, shard: int, epoch: int, first: int) -> Iterator[Any]:
        return self._data.read(self._shard, epoch, first)


@dataclass
class _Opened:
    epoch: int
    upcoming: int
    samples: Iterator[Any]


class StreamedSamples:
    """Sharded data by numbers: sample `number` is position `number % len` of epoch `number // len`.

    Numbers of a batch of `batch_size` are to be asked for in turn. Raises InvalidArgumentError for a shard
    with fewer samples than it said.
    """

    def __init__(self, data: Sharded, batch_size: int) -> None:
        self._data, self._batch_size = data, batch_size
        self._turns = _Turns(data.shard_samples)
        self._opened: dict[int, _Opened] = {}
        self._batch: tuple[int, list[tuple[int, int]]] = (-1, [])
        self._first: list[Any] = []  # whoever has no share of a batch computes with this one, for nothing

    def __len__(self) -> int:
        return len(self._data)

    def __getitem__(self, number: int) -> Any:
        if number == 0 and self._first:
            return self._first[0]
        epoch, position = divmod(number, len(self))
        sample = self._read(epoch, *self.place(position))
        if number == 0:
            self._first.append(sample)
        return sample

    def order(self, epoch: int) -> torch.Tensor:
        """The numbers of an epoch (from 0), int64 [len]."""
        return torch.arange(epoch * len(self), (epoch + 1) * len(self))

    def place(self, position: int) -> tuple[int, int]:
        """The shard of an epoch's position, and the sample's number there."""
        batch, place = divmod(position, self._batch_size)
        if self._batch[0] != batch:
            end = min((batch + 1) * self._batch_size, len(self))
            self._batch = (batch, sorted(map(self._turns.place, range(batch * self._batch_size, end))))
        return self._batch[1][place]

    def _read(self, epoch: int, shard: int, number: int) -> Any:
        opened = self._opened.get(shard)
        passed_over = -1 if opened is None or opened.epoch != epoch else number - opened.upcoming
        if opened is None or not 0 <= passed_over <= MOST_PASSED_OVER:
            opened = self._opened[shard] = _Opened(epoch, number, iter(self._data.read(shard, epoch, number)))
        try:
            while True:
                sample = next(opened.samples)
                opened.upcoming += 1
                if opened.upcoming > number:
                    return sample
        except StopIteration:
            ended, said = opened.upcoming, self._data.shard_samples[shard]
            limit = f"the {said} that shard_samples says, or fewer of them there"
            raise InvalidArgumentError.of_field(f"samples of shard {shard}", ended, limit) from None


class _Turns:
    """The shards take turns, each one sample; a shard that has given all of its own is passed over."""

    def __init__(self, lengths: Sequence[int]) -> None:
        self._starts: list[int] = []  # the first position of each stretch in which the same shards take turns
        self._firsts: list[int] = []  # the number of the shards' samples there
        self._active: list[list[int]] = []
        start = first = 0
        for length in sorted(set(lengths)):
            active = [shard for shard, own in enumerate(lengths) if own >= length]
            self._starts.append(start)
            self._firsts.append(first)
            self._active.append(active)
            start, first = start + len(active) * (length - first), length

    def place(self, position: int) -> tuple[int, int]:
        """The shard, and the sample's number there, of a position in the epoch."""
        stretch = bisect_right(self._starts, position) - 1
        turn, place = divmod(position - self._starts[stretch], len(self._active[stretch]))
        return self._active[stretch][place], self._firsts[stretch] + turn
