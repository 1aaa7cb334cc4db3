"""Hugging Face's Accelerate over an elastic loop: an Accelerator whose workers come and go."""

from typing import Any, NoReturn

import torch
from accelerate import Accelerator
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler
from torch.utils.data import DataLoader, RandomSampler

from peerloom.errors import FailedPreconditionError, InvalidArgumentError
from peerloom.integrations.epoch_batches import EpochBatches
from peerloom.worker.elastic.elastic_run import elastic

_AUTOCASTS = {"no": None, "bf16": "bf16", "fp16": "fp16"}


class ElasticAccelerator(Accelerator):  # type: ignore[misc]  # the library has no types
    """An Accelerator for a loop over `epochs` epochs, which must be known: others count on all of them.

    `prepare` wants one model, one optimiser, a DataLoader that shuffles, and a scheduler if there is one;
    other DataLoaders stay whole, on each worker. `backward` makes the whole step: backward pass, exchange,
    clipping by `clip_norm`, the optimiser's and the scheduler's step; these two do nothing when called.
    Main process, process index and number of processes are those of the moment.
    """

    def __init__(
        self, *, epochs: int, clip_norm: float | None = None, mixed_precision: str = "no", seed: int = 0
    ) -> None:
        if mixed_precision not in _AUTOCASTS:
            limit = f"one of {', '.join(_AUTOCASTS)}"
            raise InvalidArgumentError.of_field("mixed_precision", mixed_precision, limit)
        self._run = elastic(clip_norm=clip_norm, autocast=_AUTOCASTS[mixed_precision], seed=seed)
        self._epochs = epochs
        self._batches: EpochBatches | None = None
        super().__init__(cpu=self._run.device.type == "cpu", mixed_precision="no")

    @property
    def is_main_process(self) -> bool:
        return self._run.is_main

    @property
    def process_index(self) -> int:
        return self._run.rank

    @property
    def num_processes(self) -> int:
        return self._run.size

    @property
    def device(self) -> torch.device:
        return self._run.device

    def prepare(self, *args: Any, **_: Any) -> Any:
        """The same things in the same order, ready for the loop. Raises InvalidArgumentError for others."""
        if self._batches is not None:
            raise FailedPreconditionError("prepare was called twice: hand it all that is trained, once.")
        model, optimiser = _only(nn.Module, args), _only(Optimizer, args)
        schedulers = [each for each in args if isinstance(each, LRScheduler)]
        loader = _only(DataLoader, [each for each in args if not _stays_whole(each)])
        self._run.prepare(model, optimiser, *schedulers)
        self._batches = EpochBatches(self._run, loader, self._epochs)
        ready = [self._batches if each is loader else self._ready(each) for each in args]
        return tuple(ready) if len(ready) > 1 else ready[0]

    def backward(self, loss: Tensor, **_: Any) -> None:
        if self._batches is None:
            raise FailedPreconditionError("Call prepare(model, optimiser, loader) before backward(loss).")
        self._batches.make_step(loss)

    def log_step(self, **metrics: float | Tensor) -> None:
        """Numbers of this step, for `peerloom train` and `jobs show`; see `ElasticRun.log`."""
        self._run.log(**metrics)

    def clip_grad_norm_(self, *_: Any, **__: Any) -> NoReturn:
        raise FailedPreconditionError("Say ElasticAccelerator(clip_norm=...): backward makes the whole step.")

    def print(self, *args: Any, **kwargs: Any) -> None:
        if self.is_main_process:
            print(*args, **kwargs)

    def _ready(self, thing: Any) -> Any:
        if isinstance(thing, Optimizer | LRScheduler):
            return _LeftToRun(thing)
        return super().prepare(thing) if isinstance(thing, DataLoader) else thing


class _LeftToRun:
    """An optimiser or a scheduler that the run steps, and not the loop."""

    def __init__(self, own: Optimizer | LRScheduler) -> None:
        self._own = own

    def __getattr__(self, name: str) -> Any:
        return getattr(self._own, name)

    def step(self, *_: Any, **__: Any) -> None:
        """Nothing: the run does it when the step is committed."""

    def zero_grad(self, *_: Any, **__: Any) -> None:
        """Nothing: the run does it when the step is committed."""


def _stays_whole(thing: object) -> bool:
    return isinstance(thing, DataLoader) and not isinstance(thing.sampler, RandomSampler)


def _only(kind: type[Any], things: Any) -> Any:
    found = [each for each in things if isinstance(each, kind)]
    if len(found) != 1:
        which = "one that shuffles" if kind is DataLoader else "one"
        raise InvalidArgumentError.of_field(f"prepare's {kind.__name__}", f"{len(found)} of them", which)
    return found[0]
