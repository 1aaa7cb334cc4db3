"""What a worker keeps over the generations of a job."""

from functools import partial

import torch
from torch.nn.modules.batchnorm import _BatchNorm

from peerloom.kit.robust_rules import OFF
from peerloom.kit.sync_auto import first_method
from peerloom.v1.trainer_pb2 import JobSpec
from peerloom.worker.declaration import check_declaration
from peerloom.worker.schedule import Schedule
from peerloom.worker.sync.local_steps import LocalSteps, outer_optimiser
from peerloom.worker.sync.residuals import Residuals
from peerloom.worker.task import Task, load_data
from peerloom.worker.task_checks import check_method
from peerloom.worker.training_state import TrainingState
from peerloom.worker.updating.updater import Updater, updater_of

# Batch normalisation can't train on the mean and deviation of one sample.
LEAST_NORMALISED = 2
SPEED_GAIN = 0.1  # weight of the newest step in the measured speed


class Training:
    """What stays the same over the generations of a job: task, data, state, and the sums for the result."""

    def __init__(self, task: Task, spec: JobSpec, device: torch.device) -> None:
        self.task = task
        self.device = device
        self.train, self.test = load_data(task)
        torch.manual_seed(spec.seed)
        model = task.model().to(device)
        check_declaration(task, self.train, model, device)
        self.seed: int = spec.seed
        self.robust: str = spec.robust or OFF
        self.sync = first_method(spec.sync, self.robust)  # each generation may have another
        check_method(task, self.sync, self.robust)
        self.residuals = Residuals()
        self.least_samples = least_samples(model)
        self.schedule = Schedule(len(self.train), spec.batch_size, spec.epochs, spec.seed, self.sync.batches)
        new_updater = partial(updater_of, task, model, spec.learning_rate, self.schedule.total_batches)
        self.local_steps: LocalSteps | None = None  # with these the task's updater is this worker's own
        if self.sync.rounds is None:
            self.state = TrainingState(model, new_updater())
        else:
            self.local_steps = LocalSteps(model, new_updater)
            self.state = TrainingState(model, Updater(model, outer_optimiser(model, self.sync.rounds)))
        self.training_s = 0.0
        self.samples = 0
        self.steps = 0
        self.compute_s = 0.0
        self.communication_s = 0.0
        self.communicated_bytes = 0
        self.compute_s_per_sample = 0.0
        self._order: tuple[int, torch.Tensor] | None = None

    @property
    def exchanged(self) -> torch.nn.Module:
        """What a synchroniser wraps: the model, or with local steps what hands over their changes."""
        return self.local_steps.changed if self.local_steps is not None else self.state.model

    def note_speed(self, compute_s_per_sample: float) -> None:
        """Adds a step to the running mean of what computing a sample takes here."""
        past = self.compute_s_per_sample or compute_s_per_sample
        self.compute_s_per_sample = past + SPEED_GAIN * (compute_s_per_sample - past)

    def order(self, epoch: int) -> torch.Tensor:
        """The epoch's order of samples, kept for the epoch."""
        if self._order is None or self._order[0] != epoch:
            self._order = (epoch, self.schedule.order(epoch))
        return self._order[1]


def least_samples(model: torch.nn.Module) -> int:
    """The fewest samples of a batch that a worker can train the model on, if it has any."""
    return LEAST_NORMALISED if any(isinstance(m, _BatchNorm) for m in model.modules()) else 1
