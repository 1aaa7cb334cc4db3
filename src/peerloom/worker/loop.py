"""The training loop: one generation from its first step to the end of the job, or until it breaks."""

import math
import time
from collections.abc import Callable

from peerloom.v1.trainer_pb2 import EpochProgress, StepProgress
from peerloom.worker.auditing import Auditor, Audits
from peerloom.worker.balance import Balance
from peerloom.worker.buffers_before import BuffersBefore
from peerloom.worker.delayed_round import DelayedRoundMade, make_delayed_round
from peerloom.worker.evaluation import evaluate
from peerloom.worker.federated.federated_round import RoundMade, make_federated_round
from peerloom.worker.federated.federated_training import FederatedTraining
from peerloom.worker.forward_ahead import ForwardAhead
from peerloom.worker.group.process_group import Group
from peerloom.worker.joining.participants import Joining
from peerloom.worker.round_work import each_step, make_round
from peerloom.worker.schedule import split_batch
from peerloom.worker.stale.stale_step import StaleStepMade, make_stale_step
from peerloom.worker.stale.stale_training import StaleTraining
from peerloom.worker.step_share import share_of
from peerloom.worker.sync import Synchroniser, synchroniser
from peerloom.worker.sync.delayed_steps import DelayedSteps
from peerloom.worker.sync.robust.common_coin import CommonCoin
from peerloom.worker.task_checks import check_all_used
from peerloom.worker.training import Training
from peerloom.worker.training_state import TrainingState

STEPS_BEFORE_LIMIT = 20  # the first ones warm up, and say little
TIMES_SLOWEST = 30.0
LEAST_LIMIT_S = 5.0
SLOWEST_DECAY = 0.99  # the slowest step is forgotten slowly
Report = Callable[[StepProgress | EpochProgress], None]


class StepLimit:
    """How long a step may take: learned from the slowest recent step of this generation."""

    def __init__(self) -> None:
        self._steps = 0
        self._slowest_s = 0.0

    def note(self, step_s: float) -> None:
        """A step took so many seconds."""
        self._steps += 1
        self._slowest_s = max(step_s, self._slowest_s * SLOWEST_DECAY)

    def limit_s(self) -> float:
        """Seconds that a collective of the next step may take; infinite before enough steps were seen.

        Rounded up to a power of two, so that the limit changes seldom.
        """
        if self._steps < STEPS_BEFORE_LIMIT:
            return math.inf
        wanted_s = max(LEAST_LIMIT_S, TIMES_SLOWEST * self._slowest_s)
        return LEAST_LIMIT_S * 2.0 ** math.ceil(math.log2(wanted_s / LEAST_LIMIT_S))


def train_generation(
    training: Training,
    group: Group,
    joining: Joining,
    balance: Balance,
    report: Report,
    on_step: Callable[[int], None],
    auditor: Auditor,
) -> None:
    """Trains until the job's last step and evaluation are done.

    `on_step(steps)` is called after each committed step with those that this worker's state holds; `auditor`
    looks at what the others contribute. Raises
    GenerationBrokenError when the group breaks; the state then holds exactly the committed steps, or, of one
    that still catches up, some of them.
    """
    schedule = training.schedule
    # A step that broke leaves its gradients behind; the next one would add to them.
    training.state.updater.clear()
    training.enter(group.rank, group.world_size)
    limit = StepLimit()
    sync = synchroniser(
        training.exchanged,
        group,
        training.sync,
        training.residuals,
        training.robust,
        lambda ranks: auditor.say_refused(group, joining.step, ranks),
        CommonCoin(group.generation, group.rank, group.world_size) if group.audits else None,
    )
    audits, ahead = auditor.begin(training, group, sync), ForwardAhead(training, sync)
    try:
        with group.failures():
            while True:
                group.check(joining.step)
                if joining.evaluated < joining.step // schedule.steps_per_epoch:
                    group.expect(math.inf)  # how long the others evaluate isn't known
                    measured = evaluate(training, group, joining)
                    training.measured(measured)
                    report(measured)
                    continue
                group.expect(limit.limit_s())
                is_over = joining.step >= schedule.total_steps
                made = None if is_over else _steps(training, group, sync, joining, balance, audits, ahead)
                if made is None:
                    joining.after_step(0.0, is_last=True)
                    training.finish(group.check)
                    return
                took_s = math.fsum(progress.step_s for progress in made)
                limit.note(took_s)
                for progress in made:
                    report(progress)
                _between_steps(group, joining, balance, took_s, is_last=made[-1].step == schedule.total_steps)
                on_step(training.state.step)
    finally:
        audits.close()
        sync.close()
        joining.close()


def _between_steps(group: Group, joining: Joining, balance: Balance, took_s: float, is_last: bool) -> None:
    if joining.newcomers:
        joining.after_step(took_s, is_last)
    else:
        balance.after_step(group)


def _steps(
    training: Training,
    group: Group,
    sync: Synchroniser,
    joining: Joining,
    balance: Balance,
    audits: Audits,
    ahead: ForwardAhead,
) -> list[StepProgress] | None:
    """The step, or the steps of a round, that were committed at once.

    None where the step doesn't count, as a worker's script has ended its loop before it.
    """
    start_s = time.perf_counter()
    exposed_before_s, bytes_before = sync.traffic.exposed_s, sync.traffic.bytes
    step, steps = joining.step, training.steps_at_once(joining.step)
    shares = joining.shares(balance.shares)
    training.residuals.begin(step)
    training.begin_step(step, group.rank, shares)
    worked = _work(training, group, sync, joining, audits, ahead, shares)
    if worked is None:
        return None
    loss, counts, made = worked
    training.residuals.commit(len(steps))
    # Committed: from here on this step counts, whatever happens to the group. Audits need its parameters.
    audit_s = audits.make(step, counts)
    _commit(training.state, joining, ahead, loss * training.schedule.samples_in(steps), len(steps))
    worked_s = time.perf_counter() - start_s
    communication_s = min(sync.traffic.exposed_s - exposed_before_s, worked_s)
    compute_s = worked_s - communication_s - audit_s
    # A script has lines of its own between its steps, and its next step comes no sooner than these end.
    metrics = training.committed(counts=joining.catch_up is None)
    step_s = time.perf_counter() - start_s
    samples = made.trained if made is not None else counts[group.rank]
    balance.note(step_s, compute_s, samples, len(steps))
    if samples:
        training.figures.note_speed(compute_s / samples)
    whole = StepProgress(
        step=step + 1,
        total_steps=training.schedule.total_steps,
        epoch=training.schedule.epoch_of(step) + 1,
        loss=loss,
        samples=sum(counts),
        samples_per_s=sum(counts) / step_s,
        step_s=step_s,
        compute_s=compute_s,
        communication_s=communication_s,
        communicated_bytes=sync.traffic.bytes - bytes_before,
        first_sample=made.first_sample if isinstance(made, RoundMade) else training.schedule.bounds(step)[0],
        generation=group.generation,
        workers=group.world_size,
        metrics=metrics,
        batch_shares=[] if isinstance(made, RoundMade | StaleStepMade) else balance.news(shares),
        federated=made.told if isinstance(made, RoundMade) else None,
        stale=made.told if isinstance(made, StaleStepMade) else None,
    )
    told = [whole] if len(steps) == 1 else each_step(whole, steps, training.schedule)
    for progress in told:
        training.figures.add(progress)
    return told


def _work(
    training: Training,
    group: Group,
    sync: Synchroniser,
    joining: Joining,
    audits: Audits,
    ahead: ForwardAhead,
    shares: list[int],
) -> tuple[float, list[int], RoundMade | StaleStepMade | DelayedRoundMade | None] | None:
    """What comes before the update: the mean loss, the samples of each rank, and what else is told."""
    step = joining.step
    if isinstance(training, FederatedTraining):
        made = make_federated_round(training, training.federation, group, sync, step)
        return made.loss, made.counts, made
    if isinstance(training, StaleTraining):
        stale = make_stale_step(training, group, sync, step)
        return stale.loss, stale.counts, stale
    if training.local_steps is not None:
        steps = training.steps_at_once(step)
        if isinstance(training.local_steps, DelayedSteps):
            delayed = make_delayed_round(training, training.local_steps, group, sync, steps, shares)
            return delayed.loss, delayed.counts, delayed
        return *make_round(training, training.local_steps, group, sync, steps, shares), None
    buffers = BuffersBefore(training.state.model)
    try:
        loss, counts = _make_batch(training, group, sync, joining, audits, ahead, shares)
        if training.settle(step):
            return loss, counts, None
    except BaseException:
        buffers.put_back()
        raise
    buffers.put_back()
    training.state.updater.clear()
    return None


def _make_batch(
    training: Training,
    group: Group,
    sync: Synchroniser,
    joining: Joining,
    audits: Audits,
    ahead: ForwardAhead,
    shares: list[int],
) -> tuple[float, list[int]]:
    first, end = training.schedule.bounds(joining.step)
    counts = split_batch(end - first, shares, training.least_samples)
    share = share_of(training, joining.step, counts, group.rank)
    if joining.catch_up is None:  # who still catches up has other parameters
        audits.choose(counts)
    part = ahead.part_of(joining.step, counts)
    if part is None:
        part = share.walk(training, sync.forward, training.state.updater)
    training.announce(group)
    following = ahead.next_share(joining, shares, group.rank)
    if following is not None:
        return ahead.backward(part, following, group), counts
    loss = sync.backward(part, counts)
    if group.world_size > 1:
        check_all_used(training.task, training.state.model)
    group.check()
    return loss, counts


def _commit(state: TrainingState, joining: Joining, ahead: ForwardAhead, loss_sum: float, steps: int) -> None:
    if joining.catch_up is not None:
        joining.catch_up.record(loss_sum, steps)
        state.updater.clear()
        return
    ahead.step()
    state.step += steps
    state.epoch_loss_sum += loss_sum
