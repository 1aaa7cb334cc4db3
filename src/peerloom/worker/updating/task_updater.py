"""The updater of a task: its optimisers and schedules, checked."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from torch import nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from peerloom.errors import InvalidArgumentError
from peerloom.worker.updating.precision import FP16, GradientScaler
from peerloom.worker.updating.updater import Updater, wants_metric

if TYPE_CHECKING:
    from peerloom.worker.task import Task


def updater_of(
    task: "Task", model: nn.Module, learning_rate: float, steps: int, has_rounds: bool = False
) -> Updater:
    """The task's updater of `model`, in a job of so many steps. Raises InvalidArgumentError as that does.

    With rounds of local steps a schedule can't want a metric: each worker has its own, and none to go by.
    """
    name, made = type(task).__name__, task.optimiser(model.parameters(), learning_rate)
    optimisers = each_of(made)
    if not optimisers or not all(isinstance(each, Optimizer) for each in optimisers):
        limit = "an optimiser of torch, or several"
        raise InvalidArgumentError.of_field(f"{name}.optimiser()", _types(optimisers), limit)
    found = task.scheduler(made, steps)
    schedulers = [] if found is None else each_of(found)
    check_schedulers(f"{name}.scheduler()", schedulers, optimisers)
    if has_rounds and any(map(wants_metric, schedulers)):
        limit = "a schedule that wants no metric: in rounds of local steps each worker moves its own on"
        raise InvalidArgumentError.of_field(f"{name}.scheduler()", _types(schedulers), limit)
    device = next(model.parameters()).device
    scaler = GradientScaler(device) if task.autocast == FP16 else None
    return Updater(model, optimisers, schedulers, task.clip_norm, scaler)


def each_of(made: Any) -> list[Any]:
    """What a task's method made: one thing, or a sequence of them."""
    return list(made) if isinstance(made, Sequence) else [made]


def check_schedulers(name: str, schedulers: Sequence[Any], optimisers: Sequence[Optimizer]) -> None:
    """Raises InvalidArgumentError for what is no LRScheduler of torch of one of the optimisers."""
    for each in schedulers:
        if not isinstance(each, LRScheduler):
            limit = "None, or an LRScheduler of torch, or several"
            raise InvalidArgumentError.of_field(name, type(each).__name__, limit)
        if not any(each.optimizer is optimiser for optimiser in optimisers):
            limit = "one of an optimiser that is trained with"
            raise InvalidArgumentError.of_field(name, f"a {type(each).__name__} of another optimiser", limit)


def _types(values: Sequence[Any]) -> str:
    return ", ".join(type(each).__name__ for each in values) or "nothing"
