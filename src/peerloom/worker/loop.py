"""The training loop: one generation from its first step to the end of the job, or until it breaks."""

import math
import time
from collections.abc import Callable

import torch

from peerloom.v1.trainer_pb2 import EpochProgress, JobSpec, StepProgress
from peerloom.worker.balance import Balance
from peerloom.worker.exchange import exchange
from peerloom.worker.group import Group, is_collective_failure
from peerloom.worker.joining import Joining
from peerloom.worker.pace import Pace
from peerloom.worker.schedule import Schedule, samples_of, split_batch
from peerloom.worker.state import TrainingState
from peerloom.worker.sync import Synchroniser, synchroniser
from peerloom.worker.task import Task, load_data, sample_losses, sample_scores

SPEED_GAIN = 0.1  # weight of the newest step in the measured speed
Report = Callable[[StepProgress | EpochProgress], None]


class Training:
    """What stays the same over the generations of a job: task, data, state, and the sums for the result."""

    def __init__(self, task: Task, spec: JobSpec, device: torch.device) -> None:
        self.task = task
        self.device = device
        self.train, self.test = load_data(task)
        torch.manual_seed(spec.seed)
        model = task.model().to(device)
        self.state = TrainingState(model, task.optimiser(model.parameters(), spec.learning_rate))
        self.schedule = Schedule(len(self.train), spec.batch_size, spec.epochs, spec.seed)
        self.seed: int = spec.seed
        self.training_s = 0.0
        self.samples = 0
        self.steps = 0
        self.compute_s = 0.0
        self.communication_s = 0.0
        self.communicated_bytes = 0
        self.compute_s_per_sample = 0.0
        self._order: tuple[int, torch.Tensor] | None = None

    def note_speed(self, compute_s_per_sample: float) -> None:
        """Adds a step to the running mean of what computing a sample takes here."""
        past = self.compute_s_per_sample or compute_s_per_sample
        self.compute_s_per_sample = past + SPEED_GAIN * (compute_s_per_sample - past)

    def order(self, epoch: int) -> torch.Tensor:
        """The epoch's order of samples, kept for the epoch."""
        if self._order is None or self._order[0] != epoch:
            self._order = (epoch, self.schedule.order(epoch))
        return self._order[1]


def train_generation(
    training: Training,
    group: Group,
    joining: Joining,
    balance: Balance,
    report: Report,
    on_step: Callable[[int], None],
) -> None:
    """Trains until the job's last step and evaluation are done.

    `on_step(steps)` is called after each committed step with those that this worker's state holds. Raises
    GenerationBrokenError when the group breaks; the state then holds exactly the committed steps, or, of one
    that still listens, some of them.
    """
    schedule = training.schedule
    # A step that broke leaves its gradients behind; the next one would add to them.
    training.state.optimiser.zero_grad()
    sync, pace = synchroniser(training.state.model, group.world_size, group), Pace()
    try:
        while True:
            group.check(joining.step)
            if joining.evaluated < joining.step // schedule.steps_per_epoch:
                group.expect(math.inf)  # how long the others evaluate isn't known
                report(_evaluate(training, group, joining))
            elif joining.step < schedule.total_steps:
                group.expect(pace.limit_s())
                progress = _step(training, group, sync, joining, balance)
                pace.note(progress.step_s)
                report(progress)
                _between_steps(group, joining, balance, progress)
                on_step(training.state.step)
            else:
                return
    except RuntimeError as error:
        group.check()  # DDP wraps the reason of a break in an error of its own
        if is_collective_failure(error):
            raise group.broken(error) from error
        raise
    finally:
        sync.close()
        joining.close()


def _between_steps(group: Group, joining: Joining, balance: Balance, progress: StepProgress) -> None:
    if joining.listeners:
        joining.after_step(progress.step_s, is_last=progress.step == progress.total_steps)
    else:
        balance.after_step(group)


def _step(
    training: Training, group: Group, sync: Synchroniser, joining: Joining, balance: Balance
) -> StepProgress:
    start_s = time.perf_counter()
    exposed_before_s, bytes_before = sync.traffic.exposed_s, sync.traffic.bytes
    schedule, step = training.schedule, joining.step
    first, end = schedule.bounds(step)
    epoch = schedule.epoch_of(step)
    counts = split_batch(end - first, joining.shares(balance.shares))
    indices = samples_of(training.order(epoch)[first:end], counts, group.rank)
    loss = sync.backward(_local_loss(training, group, sync, step, indices, end - first))
    group.check()
    # Committed: from here on this step counts, whatever happens to the group.
    _commit(training.state, joining, loss * (end - first))
    step_s = time.perf_counter() - start_s
    communication_s = min(sync.traffic.exposed_s - exposed_before_s, step_s)
    communicated = sync.traffic.bytes - bytes_before
    _add_up(training, end - first, step_s, communication_s, communicated)
    balance.note(step_s, step_s - communication_s, len(indices))
    if len(indices):
        training.note_speed((step_s - communication_s) / len(indices))
    return StepProgress(
        step=step + 1,
        total_steps=schedule.total_steps,
        epoch=epoch + 1,
        loss=loss,
        samples=end - first,
        samples_per_s=(end - first) / step_s,
        step_s=step_s,
        compute_s=step_s - communication_s,
        communication_s=communication_s,
        communicated_bytes=communicated,
        first_sample=first,
        generation=group.generation,
        workers=group.world_size,
    )


def _commit(state: TrainingState, joining: Joining, loss_sum: float) -> None:
    if joining.listener is not None:
        joining.listener.hear(loss_sum)
        state.optimiser.zero_grad()
        return
    state.optimiser.step()
    state.optimiser.zero_grad()
    state.step += 1
    state.epoch_loss_sum += loss_sum


def _local_loss(
    training: Training, group: Group, sync: Synchroniser, step: int, indices: torch.Tensor, batch: int
) -> torch.Tensor:
    # Chance (dropout, say) depends on the seed, the step and the rank alone, so it needs no state.
    _seed(training.device, hash((training.seed, step, group.rank)) & 0x7FFF_FFFF_FFFF_FFFF)
    # A rank without a sample in a small last batch still takes part, with a loss that weighs nothing.
    weight = 1.0 if len(indices) else 0.0
    # Two, as batch normalisation can't train on one.
    chosen = indices if len(indices) else torch.zeros(2, dtype=torch.long)
    inputs, targets = training.task.batch(training.train, chosen)
    outputs = sync.forward(inputs.to(training.device))
    losses = sample_losses(training.task, outputs, targets.to(training.device))
    return losses.sum() * (weight / batch)


def _seed(device: torch.device, seed: int) -> None:
    # As torch.manual_seed, which takes about a millisecond where CUDA isn't used: it keeps a traceback.
    torch.default_generator.manual_seed(seed)
    if device.type == "cuda":
        torch.cuda.manual_seed(seed)


def _add_up(training: Training, samples: int, step_s: float, communication_s: float, bytes_: int) -> None:
    training.steps += 1
    training.samples += samples
    training.training_s += step_s
    training.communication_s += communication_s
    training.compute_s += step_s - communication_s
    training.communicated_bytes += bytes_


EVALUATION_BATCH = 256


def _evaluate(training: Training, group: Group, joining: Joining) -> EpochProgress:
    turn = joining.turn()
    score = 0.0 if turn is None else _score(training, group, *turn)
    epoch_loss_sum = 0.0 if turn is None else training.state.epoch_loss_sum
    rows = exchange(group, [score, epoch_loss_sum], torch.float64)
    group.check()
    if joining.listener is not None:
        joining.listener.evaluated += 1
    else:
        training.state.close_epoch(training.state.evaluated + 1)
    return EpochProgress(
        epoch=joining.evaluated,
        metric_name=training.task.metric_name,
        metric=sum(row[0] for row in rows) / max(1, len(training.test)),
        loss=rows[joining.source][1] / training.schedule.samples,
        test_samples=len(training.test),
    )


@torch.no_grad()
def _score(training: Training, group: Group, place: int, places: int) -> float:
    # Everybody measures a part of the test set; the parts are disjoint and cover it.
    state, task, test = training.state, training.task, training.test
    state.model.eval()
    total = 0.0
    for indices in torch.split(torch.arange(place, len(test), places), EVALUATION_BATCH):
        group.check()
        inputs, targets = task.batch(test, indices)
        outputs = state.model(inputs.to(training.device))
        scores = sample_scores(task, outputs, targets.to(training.device))
        total += float(scores.double().sum())
    state.model.train()
    return total
