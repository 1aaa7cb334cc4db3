"""The ledger of samples: which positions of each epoch's order the committed steps used, and whether all fit.

A position is counted through all epochs, from 0: sample s of epoch e (from 1) of n is (e - 1) * n + s. So
what a step used is one interval, consecutive steps of a generation are one interval, and the ledger is exact
when its intervals follow each other from 0 without a gap or an overlap.
"""

from peerloom.kit.federated_rounds import is_federated
from peerloom.kit.quantity_texts import plural
from peerloom.services.trainer.jobs.federated_entries import enter_round, forget_rounds, judge_rounds
from peerloom.services.trainer.jobs.ledger_entries import stretch_of
from peerloom.services.trainer.jobs.stale_entries import enter_parts, forget_parts, words_of
from peerloom.v1.trainer_pb2 import Job, JobState, Ledger, LedgerStretch, StepProgress

# A job's record is written at every step, so it must not grow with the number of generations.
STRETCHES_KEPT = 256


def step_samples(job: Job) -> int:
    """Samples in a step, but for the last of an epoch, which may have fewer."""
    return int(job.spec.batch_size)


def steps_per_epoch(job: Job) -> int:
    """Steps in one epoch; the last may be smaller than the others. 0 while no worker has loaded the task."""
    if job.ledger.training_samples and is_federated(job.spec.sync):
        return 1
    return -(-job.ledger.training_samples // step_samples(job)) if job.ledger.training_samples else 0


def total_steps(job: Job) -> int:
    """Steps in the whole job, or until its script ended its loop; 0 while no worker has loaded the task."""
    return int(job.progress.stopped_at_step) or planned_steps(job)


def planned_steps(job: Job) -> int:
    """Steps in all epochs that the job was to make; 0 while no worker has loaded the task."""
    return steps_per_epoch(job) * job.spec.epochs


def epochs_of(job: Job) -> int | None:
    """Epochs that a job has made when it has succeeded; None where its script ended its loop before."""
    return None if job.progress.stopped_at_step else int(job.spec.epochs)


def why_trained(job: Job) -> str:
    """What is said of a job that has succeeded."""
    stopped, planned = job.progress.stopped_at_step, planned_steps(job)
    ended = f"; its script ended the loop after step {stopped} of {planned}" if stopped else ""
    return f"the model is trained{ended}"


def add_step(ledger: Ledger, step: StepProgress) -> None:
    """Enters a committed step; it lengthens the newest stretch if it follows it in the same generation."""
    if step.HasField("federated"):
        enter_round(ledger, step)
        if len(ledger.stretches) > STRETCHES_KEPT:
            _put_together(ledger)
        return
    if step.HasField("stale"):
        enter_parts(ledger, step)
    end = step.first_sample + step.samples
    newest = ledger.stretches[-1] if ledger.stretches else None
    if newest is not None and _follows(ledger, newest, step):
        newest.last_step, newest.last_epoch, newest.end_sample = step.step, step.epoch, end
        return
    ledger.stretches.append(stretch_of(step, step.epoch))
    if len(ledger.stretches) > STRETCHES_KEPT:
        _put_together(ledger)


def go_back_in(job: Job, step: int) -> None:
    """Takes out of the job what came after `step`: it was lost with all who had it. From 0 it begins anew."""
    job.begun_anew += step == 0
    if is_federated(job.spec.sync):
        forget_rounds(job.ledger, step)
    else:
        go_back(job.ledger, step, step_samples(job))
        forget_parts(job.ledger)
    job.progress.step = step
    job.progress.epoch = min(job.progress.epoch, step // steps_per_epoch(job))


def plan_to_end(job: Job) -> None:
    """The steps until the end of the last epoch are all there are, whatever a script said of its loop."""
    job.progress.stopped_at_step = 0
    job.progress.total_steps = planned_steps(job)


def go_back(ledger: Ledger, step: int, step_samples: int) -> None:
    """Takes out what came after `step`: it was lost with all who had it, and will be used again."""
    kept = [stretch for stretch in ledger.stretches if stretch.first_step <= step]
    before = _used(ledger)
    if kept and kept[-1].last_step > step:
        cut = kept[-1]
        start = (cut.first_epoch, cut.first_sample)
        steps = step - cut.first_step + 1
        cut.last_step = step
        cut.last_epoch, cut.end_sample = advance(*start, steps, ledger.training_samples, step_samples)
    del ledger.stretches[len(kept) :]
    ledger.discarded_samples += before - _used(ledger)


def advance(epoch: int, sample: int, steps: int, samples: int, step_samples: int) -> tuple[int, int]:
    """Where `steps` steps (1 or more) from `sample` of `epoch` end: the last one's epoch and end position."""
    left_here = -(-(samples - sample) // step_samples)
    if steps <= left_here:
        return epoch, min(sample + steps * step_samples, samples)
    whole, rest = divmod(steps - left_here - 1, -(-samples // step_samples))
    return epoch + 1 + whole, min((rest + 1) * step_samples, samples)


def judge(ledger: Ledger, epochs: int | None = None) -> tuple[bool, str]:
    """Whether each sample was used exactly once, and that in words.

    `epochs` is how many the job has made in all when it has succeeded; None while it hasn't.
    """
    samples = ledger.training_samples
    if not samples:
        return False, "not known: no worker has told how many samples there are"
    expected = 0
    for stretch in ledger.stretches:
        start, end = _bounds(ledger, stretch)
        if start != expected:
            return False, _mismatch(expected, start, samples)
        expected = end
    if epochs is not None and expected != epochs * samples:
        return False, _mismatch(expected, epochs * samples, samples)
    done, rest = divmod(expected, samples)
    parts = [f"{plural(done, 'epoch')} of {samples} samples"] if done else []
    parts += [f"{rest} samples of epoch {done + 1}"] if rest or not done else []
    return True, f"exact: {' and '.join(parts)}, each used once{words_of(ledger)}"


def show_verdict(job: Job) -> Job:
    """The job as it is shown: with what `judge` says of its ledger."""
    epochs = epochs_of(job) if job.state == JobState.JOB_STATE_SUCCEEDED else None
    job.ledger.is_exact, job.ledger.verdict = judge_in(job, epochs)
    return job


def judge_in(job: Job, epochs: int | None) -> tuple[bool, str]:
    """As `judge`, of a job; of a federated one, whether each update that counted did so once."""
    if is_federated(job.spec.sync):
        return judge_rounds(job.ledger, epochs)
    return judge(job.ledger, epochs)


def _follows(ledger: Ledger, newest: LedgerStretch, step: StepProgress) -> bool:
    if (newest.last_generation, newest.last_step + 1) != (step.generation, step.step):
        return False
    end = (newest.last_epoch - 1) * ledger.training_samples + newest.end_sample
    return end == (step.epoch - 1) * ledger.training_samples + step.first_sample


def _bounds(ledger: Ledger, stretch: LedgerStretch) -> tuple[int, int]:
    n = ledger.training_samples
    return (
        (stretch.first_epoch - 1) * n + stretch.first_sample,
        (stretch.last_epoch - 1) * n + stretch.end_sample,
    )


def _used(ledger: Ledger) -> int:
    return sum(end - start for start, end in (_bounds(ledger, stretch) for stretch in ledger.stretches))


def _put_together(ledger: Ledger) -> None:
    # The oldest two that fit together; where none do, the ledger is wrong, and keeps its evidence.
    for index in range(len(ledger.stretches) - 2):
        first, second = ledger.stretches[index], ledger.stretches[index + 1]
        if _bounds(ledger, first)[1] == _bounds(ledger, second)[0]:
            first.last_generation, first.last_step = second.last_generation, second.last_step
            first.last_epoch, first.end_sample = second.last_epoch, second.end_sample
            del ledger.stretches[index + 1]
            return


def _mismatch(expected: int, found: int, samples: int) -> str:
    low, high = sorted((expected, found))
    what = "missing" if found > expected else "used twice"
    return f"from {_place(low, samples)} to {_place(high, samples)}: {high - low} samples are {what}"


def _place(position: int, samples: int) -> str:
    epoch, sample = divmod(position, samples)
    return f"sample {sample} of epoch {epoch + 1}"
