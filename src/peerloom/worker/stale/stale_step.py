"""A step of gradients that may be older, on one worker: hear what is there, take a batch's worth, sum it up.

The rows go round beside the computing, so nobody waits for who computes: who has something new, or nothing
to do, tells at once, and who computes looks up every few milliseconds.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch

from peerloom.kit.handing_out import (
    MOST_HELD,
    NOT_BEGUN,
    ROW_PAUSE_S,
    BatchPart,
    HandOut,
    Row,
    Taken,
    after_step,
    handed_out,
    taken,
    why,
    without_late,
)
from peerloom.kit.sample_ranges import Range, joined, size
from peerloom.v1.trainer_pb2 import SampleRange, StalePush, StaleStep
from peerloom.worker.federated.versions import ACCEPTED, MERGED, REFUSED
from peerloom.worker.group.process_group import Group, all_gather_rows
from peerloom.worker.group.waits import GenerationBrokenError
from peerloom.worker.stale.stale_training import StaleTraining
from peerloom.worker.sync import Synchroniser
from peerloom.worker.sync.local_steps import send_changes, trained

Numbers = list[float]
Exchange = Callable[[Numbers], Sequence[Numbers]]


@dataclass(frozen=True)
class StaleStepMade:
    """The mean `loss` over the step's samples, how many each rank brought, those that this worker has
    `trained` on meanwhile, and what is told."""

    loss: float
    counts: list[int]
    trained: int
    told: StaleStep


def make_stale_step(
    training: StaleTraining, group: Group, sync: Synchroniser, step: int, exchange: Exchange | None = None
) -> StaleStepMade:
    """Makes the job's `step` (from 0), but for the optimiser's step: leaves its gradient in `.grad`.

    `exchange` is how numbers are exchanged, by the group unless it is given. Raises GenerationBrokenError
    when the group broke or is to be left, what the synchroniser raises, and what the task raises.
    """
    tell = exchange or (lambda own: all_gather_rows(group, own, torch.float64))
    begun_s, exposed_before_s = time.perf_counter(), sync.traffic.exposed_s
    training.begin_parts(group, step)
    computer = training.computer
    computer.publish(step)
    computer.busy_s()
    before = computer.samples
    late: list[Taken] = []  # what was begun just before the last step's end is heard of after it
    while not (chosen := taken(training.handing, step)):
        training.handing, heard = without_late(_heard(training, group, step, tell), step)
        late += heard
        _drop(training, group, heard)
    made = _merge(training, group, sync, step, chosen, late)
    # Waiting is what computing doesn't hide, of the rows and sums that travel beside it.
    waited_s = time.perf_counter() - begun_s - computer.busy_s()
    sync.traffic.exposed_s = exposed_before_s + max(0.0, waited_s)
    return StaleStepMade(*made[:2], computer.samples - before, made[2])


def _heard(training: StaleTraining, group: Group, step: int, tell: Exchange) -> HandOut:
    """Hands out what can be, and hears of all what they have come to."""
    now, given = handed_out(training.handing)
    for number in given[group.rank]:
        training.computer.hand(number, training.indices_of(number, step))
    training.computer.wait(ROW_PAUSE_S)
    group.check()
    own = training.computer.row()
    # Nobody leaves with an exchange under way, in which others would wait for it.
    rows = [_row_of(numbers) for numbers in tell(_numbers_of(own, group.leaves_after(step)))]
    group.check()
    if any(row.leaves for row in rows):
        raise GenerationBrokenError("a worker was asked to leave the group in this step")
    return replace(now, rows=tuple(rows))


def _merge(
    training: StaleTraining,
    group: Group,
    sync: Synchroniser,
    step: int,
    chosen: Sequence[Taken],
    late: Sequence[Taken],
) -> tuple[float, list[int], StaleStep]:
    """Sums up what the step takes, and enters it; `late` ones were refused before."""
    now = training.handing
    samples = {each.part.number: size(training.positions_in(each.part.number)) for each in chosen}
    whole = sum(samples.values())
    changes = [torch.zeros_like(parameter) for parameter in trained(training.state.model)]
    own_loss = 0.0
    for each in chosen:
        if each.rank == group.rank:
            part = samples[each.part.number] / whole
            own_loss += part * each.part.loss
            gradients = training.computer.take(each.part.number)
            torch._foreach_add_(changes, gradients, alpha=part * now.stale.weight(each.age))
    counts = [
        sum(samples[each.part.number] for each in chosen if each.rank == rank)
        for rank in range(group.world_size)
    ]
    loss = send_changes(training.changed, changes, sync, own_loss, counts)
    group.check()
    training.handing, refused = after_step(now, step + 1, chosen)
    _drop(training, group, refused)
    late = [*(replace(each, age=each.age + 1) for each in late), *refused]
    told = _told(training, group, chosen, late)
    found = [used for each in chosen for used in training.positions_in(each.part.number)]
    training.counted.ranges = joined([*training.counted.ranges, *found])
    return loss, counts, told


def _drop(training: StaleTraining, group: Group, refused: Sequence[Taken]) -> None:
    for each in refused:
        if each.rank == group.rank:
            training.computer.drop(each.part.number)


def _told(
    training: StaleTraining, group: Group, chosen: Sequence[Taken], refused: Sequence[Taken]
) -> StaleStep:
    stale = training.handing.stale
    pushes = [
        StalePush(
            node_id=group.node_ids[each.rank],
            version=each.part.version,
            samples=_told_ranges(training.positions_in(each.part.number)),
            verdict=REFUSED if is_refused else MERGED if each.age else ACCEPTED,
            weight=0.0 if is_refused else stale.weight(each.age),
            age=each.age,
            reason=why(each, stale, is_refused),
        )
        for is_refused, group_of in ((False, chosen), (True, refused))
        for each in group_of
    ]
    return StaleStep(pushes=pushes, counted=_told_ranges(training.counted.ranges))


def _told_ranges(ranges: Sequence[Range]) -> list[SampleRange]:
    return [SampleRange(first=first, end=end) for first, end in ranges]


def _numbers_of(row: Row, leaves: bool) -> Numbers:
    nothing = BatchPart(NOT_BEGUN)
    parts = [*row.parts, *[nothing] * (MOST_HELD - len(row.parts))]
    return [
        float(leaves),
        float(row.is_busy),
        *(float(n) for each in parts for n in (each.number, each.version, each.is_done, each.loss)),
    ]


def _row_of(numbers: Numbers) -> Row:
    leaves, is_busy, *rest = numbers
    fours = [rest[first : first + 4] for first in range(0, len(rest), 4)]
    parts = [
        BatchPart(int(number), int(version), bool(is_done), loss)
        for number, version, is_done, loss in fours
        if number != NOT_BEGUN
    ]
    return Row(tuple(parts), bool(is_busy), bool(leaves))
