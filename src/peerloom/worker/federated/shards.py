"""One data set split into shards, a client's each: the same on all nodes, by the job's seed alone.

Splits by labels draw each label's parts from a Dirichlet distribution (Hsu, Qi, Brown, arXiv 1909.06335).
Each shard has at least one sample.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from peerloom.errors import InvalidArgumentError
from peerloom.kit.federated_rounds import DIRICHLET, EVEN, FederatedRounds
from peerloom.worker.batches import form_of
from peerloom.worker.task import Samples, Task, load_batch

_READ_AT_ONCE = 1024


@dataclass(frozen=True, eq=False)
class Shard:
    """A client's `count` samples, and the `order` of their numbers in a pass (from 0) over them."""

    count: int
    order: Callable[[int], Tensor]


def split_of(task: Task, samples: Samples, rounds: FederatedRounds, seed: int) -> list[Tensor]:
    """The samples of each shard, int64 and ascending: each sample stands in one of them.

    Raises InvalidArgumentError for more shards than samples, and for a split by labels of what has none.
    """
    shards, count = rounds.shards, len(samples)
    if shards > count:
        limit = f"at most {count}, the samples of the training set: a client needs one of its own"
        raise InvalidArgumentError.of_field("shards", shards, limit)
    generator = np.random.default_rng(seed)
    is_by_label = rounds.split == DIRICHLET
    labels = labels_of(task, samples).numpy() if is_by_label else np.zeros(count, dtype=np.int64)
    chosen: list[list[int]] = [[] for _ in range(shards)]
    for label in np.unique(labels):
        group = generator.permutation(np.flatnonzero(labels == label))
        sizes = np.full(shards, 1.0)
        if rounds.split != EVEN:
            sizes = generator.dirichlet(np.full(shards, rounds.alpha))
        ends = np.round(np.cumsum(sizes / sizes.sum()) * len(group)).astype(int)[:-1]
        for shard, part in zip(chosen, np.split(group, ends), strict=True):
            shard.extend(part.tolist())
    _give_each_one(chosen)
    return [torch.tensor(sorted(shard), dtype=torch.long) for shard in chosen]


def labels_of(task: Task, samples: Samples) -> Tensor:
    """The targets of all samples, int64 [n]. Raises InvalidArgumentError where these are no labels."""
    read: list[Tensor] = []
    for first in range(0, len(samples), _READ_AT_ONCE):
        indices = torch.arange(first, min(first + _READ_AT_ONCE, len(samples)))
        targets = load_batch(task, samples, indices)[1]
        if not isinstance(targets, Tensor) or targets.dim() != 1 or targets.is_floating_point():
            limit = "even or size:ALPHA: targets must be one whole number a sample to split by them"
            raise InvalidArgumentError.of_field("split", f"{DIRICHLET}, with {form_of(targets)}", limit)
        read.append(targets.long())
    return torch.cat(read)


def _give_each_one(shards: Sequence[list[int]]) -> None:
    for shard in shards:
        if not shard:
            shard.append(max(shards, key=len).pop())
