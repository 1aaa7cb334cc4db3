"""What a worker keeps over the generations of a job."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial

import torch
from torch.nn.modules.batchnorm import _BatchNorm

from peerloom.kit.robust_rules import OFF
from peerloom.kit.sync_auto import first_method
from peerloom.kit.sync_method import SyncMethod
from peerloom.v1.trainer_pb2 import EpochProgress, JobSpec
from peerloom.worker.batches import Nest, call_model
from peerloom.worker.declaration import check_declaration
from peerloom.worker.description import origin_of
from peerloom.worker.group.process_group import Group
from peerloom.worker.model_origin import ModelOrigin
from peerloom.worker.schedule import Schedule
from peerloom.worker.sharded import Sharded, StreamedSamples
from peerloom.worker.step_chance import seed_all, seed_torch
from peerloom.worker.sync.delayed_steps import steps_by
from peerloom.worker.sync.local_steps import LocalSteps, outer_optimiser
from peerloom.worker.sync.residuals import Residuals
from peerloom.worker.task import Samples, Task, load_batch, load_data, sample_losses, sample_scores
from peerloom.worker.task_checks import check_low_rank, check_method
from peerloom.worker.training_figures import TrainingFigures
from peerloom.worker.training_state import TrainingState, rounds_in, tensors_of
from peerloom.worker.updating.precision import autocast, summable
from peerloom.worker.updating.task_updater import updater_of
from peerloom.worker.updating.updater import Updater

# Batch normalisation can't train on the mean and deviation of one sample.
LEAST_NORMALISED = 2
Forward = Callable[[Nest], Nest]


class Training:
    """What stays the same over the generations of a job: task, data, state, and figures."""

    def __init__(self, task: Task, spec: JobSpec, device: torch.device) -> None:
        self.task = task
        self.device = device
        train, self.test = load_data(task)
        self.train = self.readable(train, spec.batch_size)
        torch.manual_seed(spec.seed)
        model = task.model().to(device)
        check_declaration(task, self.train, model, device)
        self.seed: int = spec.seed
        self.learning_rate: float = spec.learning_rate
        self.robust: str = spec.robust or OFF
        self.sync = SyncMethod()
        first = first_method(spec.sync, self.robust)  # each generation may have another
        check_method(task, first, self.robust)
        check_low_rank(task, model, first)
        self.residuals = Residuals()
        self.least_samples = least_samples(model)
        self.schedule = self.scheduled(self.positions(spec.seed), spec)
        steps = self.schedule.total_batches
        self._new_updater = partial(updater_of, task, model, spec.learning_rate, steps)
        self.state = TrainingState(model, self._new_updater(first.rounds is not None))
        self.local_steps: LocalSteps | None = None  # with these the task's updater is this worker's own
        self.use(first)
        self.figures = TrainingFigures()
        self.is_timed = False  # a clock listens to its passes, which don't overlap then
        self._order: tuple[int, torch.Tensor] | None = None

    @property
    def exchanged(self) -> torch.nn.Module:
        """What a synchroniser wraps: the model, or with local steps what hands over their changes."""
        return self.local_steps.changed if self.local_steps is not None else self.called

    @property
    def bears_rounds(self) -> bool:
        """Whether it can go on in rounds of local steps, in which no metric moves the learning rates."""
        return not self.state.updater.wants_metric

    @property
    def why_whole(self) -> str:
        """Why a step's forward pass can't begin before all sums of the one before; empty where it can."""
        if self.task.micro_batch is not None:
            return "a batch is computed in pieces, which add up their gradients"
        if any(True for _ in self.state.model.buffers()):
            return "torch's DDP sends rank 0's buffers before each pass, which all ranks do in the same order"
        modules = self.state.model.modules()
        if any(isinstance(one, torch.jit.ScriptModule) or hasattr(one, "_orig_mod") for one in modules):
            return "a compiled module doesn't show when it uses which parameters"
        return self.state.updater.why_whole

    def use(self, sync: SyncMethod) -> None:
        """From now on steps are made by this method.

        Where rounds of local steps begin the task's updater becomes this worker's own, with its moments;
        where they end all have a new one, as each rank's has moments of its own. What a codec left out of
        gradients isn't what it would have left out of changes, and is dropped.
        """
        before, self.sync = self.sync, sync
        if sync.rounds == before.rounds:
            return
        model, step, self.residuals = self.state.model, self.state.step, Residuals()
        if sync.rounds is None:
            self.local_steps = None
            self.state.updater = self._new_updater(False)
            self.state.updater.reach(step)
        else:
            own, before_it = partial(self._new_updater, True), self.local_steps
            self.local_steps = steps_by(sync.rounds, before_it, model, own, self.state.updater, step)
            self.state.updater = Updater(model, [outer_optimiser(model, sync.rounds)])
        self.state.rounds = str(sync.rounds or "")

    def restore(self, data: bytes) -> None:
        """Takes over a checkpoint, also one that was written by another method. Raises DataLossError."""
        tensors = tensors_of(data)
        self.use(replace(self.sync, rounds=rounds_in(tensors)))
        self.state.take(tensors)

    @property
    def begins_alike(self) -> bool:
        """Whether all workers have the same parameters before the first step, made from the job's seed."""
        return True

    @property
    def called(self) -> torch.nn.Module:
        """What the forward pass of a share calls: the model."""
        return self.state.model

    def readable(self, train: Samples | Sharded, batch_size: int) -> Samples:
        """The task's training data, by numbers."""
        return StreamedSamples(train, batch_size) if isinstance(train, Sharded) else train

    def scheduled(self, samples: int, spec: JobSpec) -> Schedule:
        """Which samples belong to which step, of so many."""
        return Schedule(samples, spec.batch_size, spec.epochs, spec.seed)

    def steps_at_once(self, step: int) -> range:
        """Those that are committed together, after `step` others: one, or those of a round of local steps."""
        if self.sync.rounds is None:
            return range(step, step + 1)
        return range(step, self.schedule.round_end(step, self.sync.rounds.period))

    def seed_step(self, seed: int) -> None:
        """Seeds the chance of a rank's share of a step; `seed` has up to 63 bits."""
        # Seeding Python's and numpy's generators too takes time, and only audits need it.
        (seed_torch if self.robust == OFF else seed_all)(self.device, seed)

    def part(self, forward: Forward, indices: torch.Tensor, batch: int, weight: float) -> torch.Tensor:
        """What the samples `indices` add to the mean loss of a batch of `batch`, times `weight`."""
        inputs, targets = load_batch(self.task, self.train, indices, self.device)
        with autocast(self.task.autocast, self.device):
            losses = sample_losses(self.task, forward(inputs), targets)
        return summable(losses).sum() * (weight / batch)

    def scores(self, indices: torch.Tensor) -> torch.Tensor:
        """The scores of test samples, [n] float32."""
        inputs, targets = load_batch(self.task, self.test, indices, self.device)
        return sample_scores(self.task, call_model(self.state.model, inputs), targets)

    def enter(self, rank: int, world_size: int) -> None:
        """A generation begins, in which this worker has this rank."""

    def draw_ahead(self, step: int) -> None:
        """So many steps were made without this worker: draws the order of their epoch's samples already.

        In their first step together all others would wait for it.
        """
        if self.state.step < step < self.schedule.total_steps:
            self.order(self.schedule.epoch_of(step))

    def begin_step(self, step: int, rank: int, shares: Sequence[int]) -> None:
        """A step begins, of which so many came before, and with the ranks' shares."""

    def announce(self, group: Group) -> None:
        """This worker's loss is computed: begins to tell the others what they need to `settle` the step."""

    def settle(self, step: int) -> bool:
        """Whether the step counts whose gradients are summed, `step` came before; False: the loop ends here.

        Raises what `Group.result` does.
        """
        return True

    def committed(self, counts: bool) -> Mapping[str, float]:
        """A step was committed, and `counts` if it changed this worker's state; further figures of it."""
        return {}

    def measured(self, progress: EpochProgress) -> None:
        """All workers have measured an epoch."""

    def finish(self, check: Callable[[], None]) -> None:
        """The last step is made; waits for what else the training needs, and raises what `check` does."""

    def origin(self, name: str, arguments: Mapping[str, str]) -> ModelOrigin:
        """What the model's file says of itself, where the task is called `name`."""
        return origin_of(self.task, name, arguments, self.train, self.state.model)

    def order(self, epoch: int) -> torch.Tensor:
        """The epoch's order of samples, kept for the epoch."""
        if self._order is None or self._order[0] != epoch:
            self._order = (epoch, self.order_of(epoch))
        return self._order[1]

    def order_of(self, epoch: int) -> torch.Tensor:
        """The same, made anew."""
        own = self.train.order if isinstance(self.train, StreamedSamples) else self.schedule.order
        return own(epoch)

    def positions(self, seed: int) -> int:
        """Samples in an epoch of a job with this seed."""
        return len(self.train)


def least_samples(model: torch.nn.Module) -> int:
    """The fewest samples of a batch that a worker can train the model on, if it has any."""
    return LEAST_NORMALISED if any(isinstance(m, _BatchNorm) for m in model.modules()) else 1
