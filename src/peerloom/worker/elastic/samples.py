"""What a loop goes through: a map-style data set, or the one of a DataLoader, and batches of its samples."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import DataLoader, RandomSampler, TensorDataset, default_collate

from peerloom.errors import InvalidArgumentError
from peerloom.worker.batches import Nest, moved, with_tensors
from peerloom.worker.task import Samples

Collate = Callable[[list[Any]], Nest]


def collate_rows(rows: list[Any]) -> Nest:
    """torch's default_collate, but lists of numbers, as Hugging Face's rows have them, become tensors."""
    return default_collate([with_tensors(row) for row in rows])


def batch_of(samples: Samples, collate: Collate, indices: Tensor, device: torch.device) -> Nest:
    """The samples `indices` (int64, [n]) put together, on `device`."""
    return moved(_together(samples, collate, indices), device)


def _together(samples: Samples, collate: Collate, indices: Tensor) -> Nest:
    if isinstance(samples, TensorDataset) and collate is collate_rows:
        return list(samples[indices])
    chosen = indices.tolist()
    several = getattr(samples, "__getitems__", None)  # as torch's own loader asks
    return collate(several(chosen) if several is not None else [samples[index] for index in chosen])


def check_samples(name: str, samples: Any) -> Samples:
    """The same samples. Raises InvalidArgumentError for what isn't a map-style data set with samples."""
    if not hasattr(samples, "__len__") or not hasattr(samples, "__getitem__"):
        limit = "a map-style data set, with a length and items"
        raise InvalidArgumentError.of_field(name, type(samples).__name__, limit)
    if not len(samples):
        raise InvalidArgumentError.of_field(name, "empty", "a data set with at least one sample")
    found: Samples = samples
    return found


def taken_apart(
    loader: DataLoader[Any], batch_size: int | None, collate: Collate | None
) -> tuple[Any, int, Collate]:
    """The data set, batch size and collate function of a DataLoader.

    Raises InvalidArgumentError for one whose batches Peerloom can't make: it shuffles, and cuts, by itself.
    """
    if batch_size is not None or collate is not None:
        limit = "left to the DataLoader, which has its own"
        raise InvalidArgumentError.of_field("batch_size or collate", "given", limit)
    sampler = loader.sampler
    is_plain = isinstance(sampler, RandomSampler) and not sampler.replacement
    if not is_plain or loader.batch_size is None or loader.drop_last:
        limit = "one with shuffle=True, a batch_size, and no sampler, batch_sampler or drop_last of its own"
        raise InvalidArgumentError.of_field("dataset", "a DataLoader of another kind", limit)
    own = loader.collate_fn
    return loader.dataset, loader.batch_size, collate_rows if own is default_collate else own
