"""The order of an epoch's samples by a sampler of the user's own, the same on all workers."""

import hashlib
from collections.abc import Iterator
from itertools import chain
from typing import Any, Protocol

import torch
from torch import Tensor

from peerloom.errors import InvalidArgumentError
from peerloom.worker.schedule import shuffled
from peerloom.worker.step_chance import kept_chance, seed_all

_CPU = torch.device("cpu")


class EpochOrder(Protocol):
    """Says which samples an epoch has, and in which order."""

    def of(self, epoch: int, seed: int) -> Tensor:
        """Their numbers in the epoch (from 0) of a job with this seed, int64 [n], of each epoch as many."""


class ShuffledOrder:
    """Another order of all samples each epoch, of which what fills no batch is left out."""

    def __init__(self, samples: int, batch_size: int) -> None:
        self._samples, self._kept = samples, samples - samples % batch_size

    def of(self, epoch: int, seed: int) -> Tensor:
        return shuffled(self._samples, seed, epoch)[: self._kept]


class SampledOrder:
    """What a batch sampler gives: its chance comes from the global generators, or by its `set_epoch`.

    Raises InvalidArgumentError where it gives none of the `samples`, or batches that aren't of `batch_size`,
    but for the last.
    """

    def __init__(self, batch_sampler: Any, samples: int, batch_size: int) -> None:
        self._batch_sampler, self._samples, self._batch_size = batch_sampler, samples, batch_size

    def of(self, epoch: int, seed: int) -> Tensor:
        with kept_chance(_CPU):
            seed_all(_CPU, (seed * 1_000_003 + epoch) % 2**63)
            for each in (self._batch_sampler, getattr(self._batch_sampler, "sampler", None)):
                if (set_epoch := getattr(each, "set_epoch", None)) is not None:
                    set_epoch(epoch)
            batches = [list(batch) for batch in self._batch_sampler]
        sizes = [len(batch) for batch in batches]
        if not sizes or any(size != self._batch_size for size in sizes[:-1]) or sizes[-1] > self._batch_size:
            limit = f"{self._batch_size} in each but the last, which may have fewer"
            raise InvalidArgumentError.of_field("samples in the sampler's batches", sorted(set(sizes)), limit)
        order = torch.tensor(list(chain.from_iterable(batches)), dtype=torch.int64)
        if int(order.min()) < 0 or int(order.max()) >= self._samples:
            found = f"from {int(order.min())} to {int(order.max())}"
            limit = f"numbers of the data set's {self._samples}"
            raise InvalidArgumentError.of_field("samples of the sampler", found, limit)
        return order


def digest_of(order: Tensor) -> int:
    """A number below 2**62, other for another order."""
    return int.from_bytes(hashlib.sha256(order.numpy().tobytes()).digest()[:8], "big") >> 2


def batch_size_of(batch_sampler: Any) -> int:
    """Samples in a batch, all of which have as many. Raises InvalidArgumentError where there is none."""
    told = getattr(batch_sampler, "batch_size", None)
    if isinstance(told, int):
        return told
    batches: Iterator[Any] = iter(batch_sampler)
    if (first := next(batches, None)) is None:
        raise InvalidArgumentError.of_field("batch_sampler", "one without a batch", "one with at least one")
    return len(list(first))
