"""What a job's record has of steps that take parts of an epoch in any order: the ledger of positions. Pure
functions.

The workers tell with each step which positions had counted before, and which it takes. The record knows the
former, too, and no position may stand in both: as the steps of an epoch have as many samples together as the
epoch has, each counts once. Only where all who had the newest steps are lost the next one has to tell what
had counted, as many positions as the steps that are left have.
"""

from collections.abc import Iterable
from functools import lru_cache

from peerloom.kit.quantity_texts import plural
from peerloom.kit.robust_rules import OFF
from peerloom.kit.sample_ranges import Range, joined, size, why_not_apart
from peerloom.kit.stale_steps import StaleSteps
from peerloom.kit.sync_auto import first_method
from peerloom.services.trainer.jobs.ledger_entries import REFUSED, why_not_push
from peerloom.v1.trainer_pb2 import Job, Ledger, SampleRange, StepProgress

_MOST_EACH = 16  # parts and ranges that a step may tell of, for each worker that the job has had


def is_stale(job: Job) -> bool:
    """Whether a job's steps take parts in any order."""
    return _stale(job.spec.sync, job.spec.robust or OFF) is not None


def why_not_parts(job: Job, step: StepProgress) -> str:
    """Why this can't be the step that follows those of the job; its number and its size fit already."""
    told, samples = step.stale, job.ledger.training_samples
    if why_not := _why_not_told(job, step):
        return why_not
    before = joined(_ranges(told.counted))
    taken = [used for push in told.pushes if push.verdict != REFUSED for used in _ranges(push.samples)]
    if why_not := why_not_apart([*before, *taken], samples):
        return f"it reports the samples of step {step.step}, but {why_not}"
    if (size(before), size(taken)) != (step.first_sample, step.samples):
        return (
            f"it reports {step.samples} samples after {step.first_sample}, and tells of {size(taken)} after "
            f"{size(before)}"
        )
    known = joined(_ranges(job.ledger.counted))
    if known and known != before:
        return f"it reports that before step {step.step} other samples had counted than those that had"
    return _why_not_aged(job, step)


def enter_parts(ledger: Ledger, step: StepProgress) -> None:
    """Enters what a committed step took and refused."""
    told, totals = step.stale, ledger.stale
    taken = [push for push in told.pushes if push.verdict != REFUSED]
    refused = [push for push in told.pushes if push.verdict == REFUSED]
    counted = joined([*_ranges(told.counted), *(used for push in taken for used in _ranges(push.samples))])
    is_over = size(counted) == ledger.training_samples
    del ledger.counted[:]
    ledger.counted.extend(SampleRange(first=first, end=end) for first, end in counted if not is_over)
    totals.parts += len(taken)
    totals.merged += sum(push.age > 0 for push in taken)
    totals.oldest = max([totals.oldest, *(push.age for push in taken)])
    totals.refused += len(refused)
    totals.refused_samples += sum(size(_ranges(push.samples)) for push in refused)


def forget_parts(ledger: Ledger) -> None:
    """Steps were lost with all who had them: which positions had counted before is told with the next one."""
    del ledger.counted[:]


def words_of(ledger: Ledger) -> str:
    """What became of the parts, for the ledger's verdict; "" where a job has none."""
    totals = ledger.stale
    if not totals.parts:
        return ""
    age = plural(totals.oldest, "step")
    merged = f"{totals.merged} of {totals.parts} parts began up to {age} before" if totals.merged else ""
    refused = f"{totals.refused} came too late and were handed out again" if totals.refused else ""
    return "".join(f"; {words}" for words in (merged, refused) if words)


def _why_not_told(job: Job, step: StepProgress) -> str:
    told, most = step.stale, _MOST_EACH * max(1, len(job.workers))
    ranges = sum(len(push.samples) for push in told.pushes)
    if max(len(told.pushes), len(told.counted), ranges) > most:
        told_of = f"{len(told.pushes)} parts and {len(told.counted)} ranges"
        return f"it tells of {told_of}, of {len(job.workers)} workers"
    for push in told.pushes:
        if why_not := why_not_push(push, "a part"):
            return why_not
        if not push.samples:
            return f"it tells of a part without samples in step {step.step}"
    refused = [push for push in told.pushes if push.verdict == REFUSED]
    whole = job.ledger.training_samples
    found = (why_not_apart(_ranges(push.samples), whole) for push in refused)
    return next((f"it tells of a part that was refused, and {why}" for why in found if why), "")


def _why_not_aged(job: Job, step: StepProgress) -> str:
    stale = _stale(job.spec.sync, job.spec.robust or OFF)
    assert stale is not None, "the job takes older gradients"
    for push in step.stale.pushes:
        at = step.step - (push.verdict != REFUSED)
        if push.version + push.age != at:
            return (
                f"it tells of a part of version {push.version} with an age of {push.age} in step {step.step}"
            )
        if (push.verdict != REFUSED) != stale.allows(push.age):
            return f"it tells of a part that is {push.age} steps old and {push.verdict}, against {stale}"
    return ""


@lru_cache(maxsize=256)  # it is asked at every step of every job
def _stale(sync: str, robust: str) -> StaleSteps | None:
    return first_method(sync, robust).stale


def _ranges(told: Iterable[SampleRange]) -> list[Range]:
    return [(int(each.first), int(each.end)) for each in told]
