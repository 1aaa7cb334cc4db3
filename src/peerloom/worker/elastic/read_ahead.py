"""Samples read beside the training, by the processes of torch's own loader: those of the shares to come.

Which samples a worker needs next follows from its share of now. Where it gets another share, or a step again,
what was read ahead is thrown away. Where the sandbox has no locks between processes, samples are read here,
when they are wanted: the same ones, with the same chance.
"""

import multiprocessing
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils.data import DataLoader, Dataset

from peerloom.kit.logs import get_logger
from peerloom.worker.batches import Nest
from peerloom.worker.elastic.samples import Collate, together
from peerloom.worker.step_chance import kept_chance, seed_all
from peerloom.worker.task import Samples

_log = get_logger()
_CPU = torch.device("cpu")


@dataclass(frozen=True)
class WantedPiece:
    """The samples of a piece of a share in a step, and what seeds the chance of reading them."""

    step: int
    seed: int
    samples: tuple[int, ...]


class ReadAhead:
    """Reads with the processes, and the other settings, of a user's `loader`."""

    def __init__(self, samples: Samples, collate: Collate, loader: DataLoader[Any]) -> None:
        self._coming: Iterable[WantedPiece] = ()
        self._begun: deque[WantedPiece] = deque()  # in the order in which they will be there
        self._batches: Iterator[Nest] = iter(())
        self._reader = _Reader(samples, collate)
        self._loader = self._with_processes(loader) if _has_locks() else None

    def read(self, wanted: WantedPiece, coming: Iterable[WantedPiece]) -> Nest:
        """The samples put together; `coming` is what is likely to be wanted, from this reading on."""
        if self._loader is None:
            with kept_chance(_CPU):
                return self._reader[wanted]
        if not self._begun or self._begun[0] != wanted:
            self._begun.clear()
            self._coming = coming
            self._batches = iter(self._loader)
        self._begun.popleft()
        return next(self._batches)

    def close(self) -> None:
        """Ends the loader's processes; what is read from now on is read here."""
        # It refers to this by what it reads next. Left to the garbage collector, which takes its queues away
        # before it, it would wait 5 s for processes that hear nothing.
        self._loader, self._batches = None, iter(())

    def begin(self) -> Iterator[WantedPiece]:
        """Names what the loader reads next; it asks for it ahead."""
        for reading in self._coming:
            self._begun.append(reading)
            yield reading

    def _with_processes(self, loader: DataLoader[Any]) -> DataLoader[Any]:
        return DataLoader(
            self._reader,
            batch_size=None,  # what is asked for is a batch already
            sampler=_Coming(self),
            collate_fn=_as_it_is,
            num_workers=loader.num_workers,
            pin_memory=loader.pin_memory,
            timeout=loader.timeout,
            worker_init_fn=loader.worker_init_fn,
            multiprocessing_context=loader.multiprocessing_context,
            prefetch_factor=loader.prefetch_factor,
            persistent_workers=True,
        )


class _Coming:
    """The loader's sampler: `ahead` says what comes."""

    def __init__(self, ahead: ReadAhead) -> None:
        self._ahead = ahead

    def __iter__(self) -> Iterator[WantedPiece]:
        return self._ahead.begin()


class _Reader(Dataset[Nest]):
    """A data set of whole batches, which are asked for by what is read."""

    def __init__(self, samples: Samples, collate: Collate) -> None:
        self._samples, self._collate = samples, collate

    def __getitem__(self, reading: WantedPiece) -> Nest:
        seed_all(_CPU, reading.seed)
        return together(self._samples, self._collate, torch.tensor(reading.samples, dtype=torch.int64))


def _has_locks() -> bool:
    try:
        multiprocessing.Lock()
    except OSError as error:
        _log.warning("read_without_processes", reason=f"the sandbox has no locks for them: {error}")
        return False
    return True


def _as_it_is(batch: Nest) -> Nest:
    return batch
