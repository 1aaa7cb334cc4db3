"""From a step's sum of gradients to the next parameters: unscale, clip, optimise, move on in the schedule."""

import json
import warnings
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.optim.lr_scheduler import LRScheduler, ReduceLROnPlateau

from peerloom.errors import InvalidArgumentError
from peerloom.worker.updating.clipping import clip_gradients, gradients_of, sum_of_squares
from peerloom.worker.updating.named_state import flatten, load_schedule, names_of, unflatten
from peerloom.worker.updating.precision import FP16, GradientScaler

if TYPE_CHECKING:
    from peerloom.worker.task import Task


class Updater:
    """An optimiser with what belongs to it: schedule, clipping, and fp16's scale.

    All of it follows from the sums of gradients alone, and `state` is all that it remembers. Raises
    InvalidArgumentError for an optimiser of other parameters than the model's, and for a state that a file of
    numbers and text can't hold.
    """

    def __init__(
        self,
        model: nn.Module,
        optimiser: torch.optim.Optimizer,
        scheduler: LRScheduler | None = None,
        clip_norm: float | None = None,
        scaler: GradientScaler | None = None,
    ) -> None:
        self.optimiser = optimiser
        self._model = model
        self._scheduler = scheduler
        self._clip_norm = clip_norm
        self._scaler = scaler
        self._names = names_of(optimiser, model)
        self._updates = 0  # that the schedule has seen
        self._updated = [each for group in optimiser.param_groups for each in group["params"]]
        try:
            json.dumps(self.state()[0])
        except TypeError as error:
            limit = "an optimiser and a schedule that remember tensors, numbers and text"
            raise InvalidArgumentError.of_field("optimiser() or scheduler()", str(error), limit) from error

    @property
    def learning_rate(self) -> float:
        """Of the next step, in the first group of parameters."""
        return float(self.optimiser.param_groups[0]["lr"])

    def scaled(self, loss: Tensor) -> Tensor:
        """The same loss, to be differentiated: its gradients come with fp16's scale, if there is one."""
        return loss if self._scaler is None else self._scaler.scaled(loss)

    def squares(self) -> float:
        """The sum of the squares of all gradients, where these are to be clipped; else 0."""
        return 0.0 if self._clip_norm is None else sum_of_squares(gradients_of(self._updated))

    def step(self, norm: float | None = None) -> None:
        """The next parameters of the gradients in `.grad`, which are cleared; and the next learning rate.

        `norm` is that of the whole gradient, where others hold parts of it: these are clipped by it.
        """
        if self._scaler is not None:
            self._scaler.unscale(self.optimiser)
        if self._clip_norm is not None:
            clip_gradients(self._updated, self._clip_norm, norm)
        if self._scaler is not None:
            self._scaler.step(self.optimiser)
        else:
            self.optimiser.step()
        self.clear()
        with nullcontext() if self._scaler is None else _without_a_step():
            self._step_schedule()

    def reach(self, updates: int) -> None:
        """Moves the schedule on to where it is after so many updates: others have made those before."""
        if self._updates < updates:
            with _without_a_step():
                while self._updates < updates:
                    self._step_schedule()

    def clear(self) -> None:
        """Forgets gradients, of parameters that the optimiser leaves alone too: they would add up."""
        self._model.zero_grad()

    def state(self) -> tuple[dict[str, Any], dict[str, Tensor]]:
        """What is plain, for JSON, and the tensors, by name; these are the optimiser's own, not copies."""
        described, tensors = flatten(self.optimiser, self._names)
        return {**described, **self._rates(), "updates": self._updates}, tensors

    def load(self, described: dict[str, Any], tensors: dict[str, Tensor]) -> None:
        """Takes over another worker's `state`. Raises KeyError or ValueError for one of another task."""
        schedule, scale = described["schedule"], described["scale"]
        if (schedule is None, scale is None) != (self._scheduler is None, self._scaler is None):
            raise ValueError("only one of both has a learning-rate schedule, or computes in fp16")
        self.optimiser.load_state_dict(unflatten(self.optimiser, self._names, described, tensors))
        if self._scheduler is not None:
            load_schedule(self._scheduler, schedule)
        if self._scaler is not None:
            self._scaler.load(scale)
        self._updates = described["updates"]

    def moments(self) -> list[Tensor]:
        """The optimiser's tensors, in an order that all ranks have."""
        states = self.optimiser.state_dict()["state"]
        entries = [states[index][key] for index in sorted(states) for key in sorted(states[index])]
        return [entry for entry in entries if isinstance(entry, Tensor)]

    def fingerprint(self) -> int:
        """A number below 2**32, other for another learning rate, place in the schedule, or scale."""
        rates = [group.get("lr") for group in self.optimiser.param_groups]
        return zlib.crc32(json.dumps([rates, self._rates()], sort_keys=True).encode())

    def _rates(self) -> dict[str, Any]:
        return {
            "schedule": None if self._scheduler is None else self._scheduler.state_dict(),
            "scale": None if self._scaler is None else self._scaler.state(),
        }

    def _step_schedule(self) -> None:
        self._updates += 1
        if self._scheduler is not None:
            self._scheduler.step()


@contextmanager
def _without_a_step() -> Iterator[None]:
    """The schedule goes on where the optimiser didn't: its scale was too large, or others made the steps."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Detected call of", UserWarning)
        yield


def updater_of(task: "Task", model: nn.Module, learning_rate: float, steps: int) -> Updater:
    """The task's updater of `model`, in a job of so many steps. Raises InvalidArgumentError as that does."""
    optimiser = task.optimiser(model.parameters(), learning_rate)
    scheduler = task.scheduler(optimiser, steps)
    if scheduler is not None and (
        not isinstance(scheduler, LRScheduler) or isinstance(scheduler, ReduceLROnPlateau)
    ):
        limit = "None, or an LRScheduler of torch whose step() needs no metric"
        name = f"{type(task).__name__}.scheduler()"
        raise InvalidArgumentError.of_field(name, type(scheduler).__name__, limit)
    device = next(model.parameters()).device
    scaler = GradientScaler(device) if task.autocast == FP16 else None
    return Updater(model, optimiser, scheduler, task.clip_norm, scaler)
