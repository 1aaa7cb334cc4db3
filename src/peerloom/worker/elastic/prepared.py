"""What a script hands over to be trained: models, optimisers and schedules, in any order and number."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from peerloom.errors import InvalidArgumentError
from peerloom.worker.elastic.losses import MOST_OPTIMISERS
from peerloom.worker.updating.task_updater import check_schedulers


@dataclass(frozen=True, eq=False)
class Prepared:
    """`model` is the only one, or a ModuleList of all of them in their order."""

    model: nn.Module
    optimisers: tuple[Optimizer, ...]
    schedulers: tuple[LRScheduler, ...]


def prepared_of(parts: Sequence[Any], device: torch.device) -> Prepared:
    """The parts by their kinds, the models on `device`.

    Raises InvalidArgumentError for a part of another kind, and where there is no model or no optimiser.
    """
    models = [each for each in parts if isinstance(each, nn.Module)]
    optimisers = [each for each in parts if isinstance(each, Optimizer)]
    schedulers = [each for each in parts if isinstance(each, LRScheduler)]
    limit = "torch's Modules, Optimizers and LRSchedulers, with one at least of the first two kinds"
    for each in parts:
        if not isinstance(each, nn.Module | Optimizer | LRScheduler):
            raise InvalidArgumentError.of_field("run.prepare's parts", f"a {type(each).__name__}", limit)
    if not models or not optimisers:
        found = ", ".join(type(each).__name__ for each in parts) or "nothing"
        raise InvalidArgumentError.of_field("run.prepare's parts", found, limit)
    if len(optimisers) > MOST_OPTIMISERS:
        limit = f"at most {MOST_OPTIMISERS}"
        raise InvalidArgumentError.of_field("run.prepare's optimisers", len(optimisers), limit)
    check_schedulers("run.prepare's schedule", schedulers, optimisers)
    model = models[0] if len(models) == 1 else nn.ModuleList(models)
    return Prepared(model.to(device), tuple(optimisers), tuple(schedulers))
