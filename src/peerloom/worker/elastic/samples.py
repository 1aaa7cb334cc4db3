"""What a loop goes through: a data set, or all that a DataLoader says of one, and batches of its samples."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch import Tensor
from torch.utils.data import BatchSampler, DataLoader, RandomSampler, TensorDataset, default_collate

from peerloom.errors import InvalidArgumentError
from peerloom.worker.batches import Nest, with_tensors
from peerloom.worker.elastic.epoch_order import EpochOrder, SampledOrder, ShuffledOrder, batch_size_of
from peerloom.worker.elastic.loop_settings import whole_number
from peerloom.worker.sharded import Sharded
from peerloom.worker.task import Samples

BATCH_SIZE = 32

Collate = Callable[[list[Any]], Nest]


def collate_rows(rows: list[Any]) -> Nest:
    """torch's default_collate, but lists of numbers, as Hugging Face's rows have them, become tensors."""
    return default_collate([with_tensors(row) for row in rows])


@dataclass(frozen=True, eq=False)
class LoopData:
    """What a loop goes through: with an `order` that isn't a plain shuffle, read with what `loader` says."""

    samples: Samples | Sharded
    batch_size: int
    collate: Collate = collate_rows
    order: EpochOrder | None = None
    loader: DataLoader[Any] | None = None


def together(samples: Samples, collate: Collate, indices: Tensor) -> Nest:
    """The samples `indices` (int64, [n]) put together."""
    if isinstance(samples, TensorDataset) and collate is collate_rows:
        return list(samples[indices])
    chosen = indices.tolist()
    several = getattr(samples, "__getitems__", None)  # as torch's own loader asks
    return collate(several(chosen) if several is not None else [samples[index] for index in chosen])


def check_samples(name: str, samples: Any) -> Samples:
    """The same samples. Raises InvalidArgumentError for what isn't a map-style data set with samples."""
    if not hasattr(samples, "__len__") or not hasattr(samples, "__getitem__"):
        limit = "a map-style data set, or to train on also a peerloom.worker.sharded.Sharded"
        raise InvalidArgumentError.of_field(name, type(samples).__name__, limit)
    if not len(samples):
        raise InvalidArgumentError.of_field(name, "empty", "a data set with at least one sample")
    found: Samples = samples
    return found


def loop_data(dataset: Any, batch_size: int | None, collate: Collate | None) -> LoopData:
    """What `run.batches` was given, checked. Raises InvalidArgumentError for what can't be shared out."""
    if isinstance(dataset, DataLoader):
        return _taken_apart(dataset, batch_size, collate)
    size = whole_number("batch_size", BATCH_SIZE if batch_size is None else batch_size)
    samples = dataset if isinstance(dataset, Sharded) else check_samples("dataset", dataset)
    return LoopData(samples, size, collate or collate_rows)


def _taken_apart(loader: DataLoader[Any], batch_size: int | None, collate: Collate | None) -> LoopData:
    if batch_size is not None or collate is not None:
        limit = "left to the DataLoader, which has its own"
        raise InvalidArgumentError.of_field("batch_size or collate", "given", limit)
    samples = check_samples("the DataLoader's dataset", loader.dataset)
    batches: Any = loader.batch_sampler
    if batches is None:
        limit = "one with a batch_size or a batch_sampler"
        raise InvalidArgumentError.of_field("dataset", "a DataLoader without batches", limit)
    size = batch_size_of(batches)
    own = loader.collate_fn
    return LoopData(
        samples,
        size,
        collate_rows if own is default_collate else own,
        _order_of(loader.sampler, batches, len(samples), size),
        loader if loader.num_workers else None,
    )


def _order_of(sampler: Any, batches: Any, samples: int, batch_size: int) -> EpochOrder | None:
    is_plain = type(batches) is BatchSampler and type(sampler) is RandomSampler
    if not is_plain or sampler.replacement or sampler.num_samples != samples:
        return SampledOrder(batches, samples, batch_size)
    return ShuffledOrder(samples, batch_size) if batches.drop_last else None
