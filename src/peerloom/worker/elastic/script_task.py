"""What a script hands over when its loop begins, as a task: the training takes it from there."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from peerloom.errors import FailedPreconditionError
from peerloom.worker.batches import Nest
from peerloom.worker.elastic.conversation import Conversation
from peerloom.worker.elastic.loop_settings import LoopSettings
from peerloom.worker.elastic.prepared import Prepared
from peerloom.worker.elastic.samples import Collate, LoopData, collate_rows
from peerloom.worker.model_origin import ModelOrigin
from peerloom.worker.sharded import Sharded
from peerloom.worker.task import LOSS_METRIC, Samples, Task
from peerloom.worker.training_state import Registered


@dataclass(frozen=True, eq=False)
class ScriptEvaluation:
    """What is measured after each epoch: the mean of `score` (one value a sample, [n]) over `samples`."""

    score: Callable[[Nest], Tensor]
    samples: Samples
    name: str
    collate: Collate = collate_rows


@dataclass(frozen=True, eq=False)
class ScriptLoop:
    """All that the script said of its training before the first batch."""

    prepared: Prepared
    data: LoopData
    epochs: int
    settings: LoopSettings = field(default_factory=LoopSettings)
    evaluation: ScriptEvaluation | None = None
    registered: Mapping[str, Registered] = field(default_factory=dict)
    origin: ModelOrigin | None = None  # what the script declared of its model


class Watcher(Protocol):
    """Whoever wants to know where the script's worker stands."""

    def placed(self, rank: int, size: int) -> None:
        """It is this rank of so many now."""

    def reached(self, steps: int) -> None:
        """So many steps are committed."""

    def measured(self, epoch: int, loss: float, metric: float) -> None:
        """An epoch (from 1) was measured."""


class ScriptTask(Task):
    """A task with a script's own objects; losses are the script's, by its `conversation`."""

    def __init__(self, loop: ScriptLoop, conversation: Conversation[ScriptLoop], watcher: Watcher) -> None:
        self.loop, self.conversation, self.watcher = loop, conversation, watcher
        self.epochs, self.batch_size = loop.epochs, loop.data.batch_size
        group = loop.prepared.optimisers[0].param_groups[0]
        self.learning_rate = float(group.get("initial_lr", group["lr"]))  # a warm-up may begin at 0
        self.metric_name = loop.evaluation.name if loop.evaluation is not None else LOSS_METRIC
        settings = loop.settings
        self.clip_norm, self.autocast = settings.clip_norm, settings.autocast
        self.micro_batch = settings.micro_batch

    def model(self) -> nn.Module:
        return self.loop.prepared.model

    def data(self) -> tuple[Samples | Sharded, Samples]:
        return (
            self.loop.data.samples,
            self.loop.evaluation.samples if self.loop.evaluation is not None else [],
        )

    def batch(self, split: Samples, indices: Tensor) -> tuple[Nest, Nest]:
        raise FailedPreconditionError("A script's batches have no inputs and targets that are known apart.")

    def optimiser(self, parameters: Iterable[nn.Parameter], learning_rate: float) -> Sequence[Optimizer]:
        return self.loop.prepared.optimisers

    def scheduler(self, optimiser: object, total_steps: int) -> Sequence[LRScheduler]:
        return self.loop.prepared.schedulers
