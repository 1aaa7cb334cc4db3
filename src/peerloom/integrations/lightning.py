"""PyTorch Lightning's Trainer over an elastic loop: Trainer(strategy=PeerloomStrategy())."""

from collections.abc import Callable, Iterator
from typing import Any

import pytorch_lightning as pl
from pytorch_lightning.strategies import SingleDeviceStrategy
from pytorch_lightning.utilities.types import LRSchedulerConfig
from torch import Tensor
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from peerloom.errors import FailedPreconditionError, InvalidArgumentError
from peerloom.integrations.epoch_batches import EpochBatches
from peerloom.kit.elastic_scripts import METRICS_MOST
from peerloom.worker.batches import Nest
from peerloom.worker.elastic.elastic_run import ElasticRun, elastic

_PRECISIONS = {"32-true": None, "bf16-mixed": "bf16", "16-mixed": "fp16"}


class PeerloomStrategy(SingleDeviceStrategy):
    """The Trainer's loop is Peerloom's: steps are exchanged and committed, and no worker's loss restarts it.

    `seed` is that of `peerloom.elastic`; the norm of clipping, the precision, the number of epochs and the
    data are the Trainer's. Each worker validates on all validation samples. What is logged
    in a training step is the job's too. Raises InvalidArgumentError, naming the Trainer's setting, for what a
    run can't do.
    """

    strategy_name = "peerloom"

    def __init__(self, *, seed: int = 0) -> None:
        super().__init__(elastic().device)
        self._seed = seed
        self._run: ElasticRun | None = None
        self._batches: EpochBatches | None = None
        self._redone: list[Nest] = []  # at most one: the batch whose exchange broke, as it came again
        self._loss: Tensor | None = None

    @property
    def is_global_zero(self) -> bool:
        return self._run is None or self._run.is_main

    def setup(self, trainer: pl.Trainer) -> None:
        super().setup(trainer)
        if trainer.training:
            _check(trainer)
            self._run = elastic(
                clip_norm=trainer.gradient_clip_val or None,
                autocast=_PRECISIONS[trainer.precision],
                seed=self._seed,
            )

    def process_dataloader(self, dataloader: object) -> object:
        if self._run is None or not self._trainer.training:
            return dataloader
        assert self._trainer.max_epochs is not None, "it was checked"
        self._batches = EpochBatches(self._run, dataloader, self._trainer.max_epochs)
        return _TrainerBatches(self._trainer, self._batches)

    def on_train_start(self) -> None:
        assert self._run is not None
        assert self._batches is not None, "the Trainer has asked for its data"
        schedulers = [_EveryNth(config, len(self._batches)) for config in self.lr_scheduler_configs]
        self.lr_scheduler_configs = []  # the run steps it
        (optimiser,) = self.optimizers
        self._run.prepare(self._trainer.lightning_module, optimiser, *schedulers)
        self._batches.begin()
        progress: Any = self._trainer.fit_loop.epoch_progress.current
        progress.ready = progress.started = progress.processed = progress.completed = self._batches.epoch

    def training_step(self, batch: Nest, *args: Any, **kwargs: Any) -> Any:
        return super().training_step(self._redone.pop() if self._redone else batch, *args, **kwargs)

    def backward(self, closure_loss: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        self._loss = closure_loss  # the run makes the backward pass
        return closure_loss

    def optimizer_step(
        self, optimizer: Optimizer, closure: Callable[[], Any], model: Any = None, **kwargs: Any
    ) -> Any:
        assert self._run is not None
        assert self._batches is not None, "there is a batch"
        while True:
            result = closure()
            if self._loss is None:
                raise FailedPreconditionError("training_step gave no loss, which each batch needs here.")
            loss, self._loss = self._loss, None
            self._run.log(**_numbers(self._trainer))
            if self._batches.make_step(loss):
                return result
            try:
                self._redone.append(self._batches.another())
            except StopIteration:  # another worker has stopped early, before this batch was committed
                return result

    def on_train_end(self) -> None:
        if self._batches is not None:
            self._batches.finish()

    @property
    def _trainer(self) -> pl.Trainer:
        assert self.lightning_module is not None, "it is connected"
        return self.lightning_module.trainer


class _TrainerBatches:
    """The Trainer's data, which begins where the run is."""

    def __init__(self, trainer: pl.Trainer, batches: EpochBatches) -> None:
        self._trainer, self._batches = trainer, batches
        self._is_first = True

    def __len__(self) -> int:
        return len(self._batches)

    def __iter__(self) -> Iterator[Nest]:
        while True:
            try:
                batch = self._batches.another()
            except StopIteration:
                self._trainer.should_stop = True
                return
            if self._is_first:
                self._is_first = False
                self._go_on()
            yield batch

    def _go_on(self) -> None:
        """Tells the Trainer how far the others are."""
        steps, loop = self._batches.within_epoch, self._trainer.fit_loop.epoch_loop
        progress: Any = loop.batch_progress.current
        progress.ready = progress.started = progress.processed = progress.completed = steps
        loop._batches_that_stepped = self._batches.step
        made = loop.automatic_optimization.optim_progress.optimizer.step
        made.total.ready = made.total.completed = self._batches.step
        fetcher = self._trainer.fit_loop._data_fetcher
        assert fetcher is not None, "it has asked for a batch"
        fetcher.fetched += steps


class _EveryNth(LRScheduler):
    """A scheduler that the Trainer steps once an epoch, or every few steps, for a run that does at each."""

    def __init__(self, config: LRSchedulerConfig, steps_per_epoch: int) -> None:
        if not isinstance(config.scheduler, LRScheduler) or config.reduce_on_plateau:
            found = type(config.scheduler).__name__
            raise InvalidArgumentError.of_field("lr_scheduler", found, "one that needs no metric")
        self._scheduler = config.scheduler
        self._every = config.frequency * (steps_per_epoch if config.interval == "epoch" else 1)
        self._steps = 0
        self.optimizer = config.scheduler.optimizer

    def step(self, epoch: int | None = None) -> None:
        self._steps += 1
        if self._steps % self._every == 0:
            self._scheduler.step()

    def get_last_lr(self) -> list[Any]:
        return self._scheduler.get_last_lr()

    def state_dict(self) -> dict[str, Any]:
        return {"steps": self._steps, "scheduler": self._scheduler.state_dict()}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self._steps = state_dict["steps"]
        self._scheduler.load_state_dict(state_dict["scheduler"])


def _check(trainer: pl.Trainer) -> None:
    precisions = f"one of {', '.join(_PRECISIONS)}"
    refused: list[tuple[str, object, bool, str]] = [
        ("max_epochs", trainer.max_epochs, (trainer.max_epochs or 0) < 1, "a number: others count on all"),
        ("max_steps", trainer.max_steps, trainer.max_steps != -1, "left out: say max_epochs"),
        (
            "precision",
            trainer.precision,
            trainer.precision not in _PRECISIONS,
            precisions,
        ),
        (
            "accumulate_grad_batches",
            trainer.accumulate_grad_batches,
            trainer.accumulate_grad_batches != 1,
            "1: the batch is shared out already, so take a larger one",
        ),
        (
            "limit_train_batches",
            trainer.limit_train_batches,
            trainer.limit_train_batches != 1.0,
            "1.0: an epoch is the whole data set",
        ),
        (
            "gradient_clip_algorithm",
            trainer.gradient_clip_algorithm,
            trainer.gradient_clip_algorithm not in (None, "norm"),
            "'norm'",
        ),
        ("optimizers", len(trainer.strategy.optimizers), len(trainer.strategy.optimizers) != 1, "one"),
        (
            "automatic_optimization",
            False,
            not trainer.lightning_module.automatic_optimization,
            "True: the run makes backward pass and step",
        ),
    ]
    for name, value, is_refused, limit in refused:
        if is_refused:
            raise InvalidArgumentError.of_field(name, value, f"{limit}, with PeerloomStrategy")


def _numbers(trainer: pl.Trainer) -> dict[str, float]:
    """What was logged last, as the run's log takes it."""
    return {name: float(value) for name, value in list(trainer.callback_metrics.items())[:METRICS_MOST]}
