"""A worker gathers its steps, and tells them in order and once, and again where that is needed."""

from collections.abc import Callable, Mapping
from types import MappingProxyType

from peerloom.testing.virtual_loop import VirtualLoop
from peerloom.v1.trainer_pb2 import EpochProgress, StepProgress, WorkerSessionRequest, WorkerSteps
from peerloom.worker.progress_reports import MESSAGE_BYTES, ProgressReports

INTERVAL_S, END_S = 0.2, 10.0
NOTHING: Mapping[str, float] = MappingProxyType({})
Told = list[tuple[float, str]]  # when, and what
Deed = Callable[[ProgressReports], None]


def told_after(*deeds: tuple[float, Deed]) -> Told:
    """What a worker with this interval tells until the end, when it does something at these times."""
    loop = VirtualLoop()
    begin_s = loop.time()
    told: Told = []

    def send(message: WorkerSessionRequest) -> None:
        told.append((round(loop.time() - begin_s, 3), in_words(message)))

    reports = ProgressReports(loop, send)
    reports.interval_s = INTERVAL_S
    for at_s, deed in deeds:
        loop.call_at(begin_s + at_s, deed, reports)
    end = loop.create_future()
    loop.call_at(begin_s + END_S, end.set_result, None)
    loop.run_until_complete(end)
    loop.close()
    return told


def in_words(message: WorkerSessionRequest) -> str:
    """ "3 4" for two steps, "epoch 1" for an epoch."""
    if message.HasField("epoch"):
        return f"epoch {message.epoch.epoch}"
    return " ".join(str(step.step) for step in message.steps.steps)


def step(number: int, metrics: Mapping[str, float] = NOTHING) -> Deed:
    """Commits a step."""
    return lambda reports: reports.add(StepProgress(step=number, metrics=metrics))


def steps(first: int, last: int, each_s: float, begin_s: float = 0.0) -> list[tuple[float, Deed]]:
    """Commits these, one after the other."""
    return [(begin_s + each_s * place, step(number)) for place, number in enumerate(range(first, last + 1))]


def reporting(reports: ProgressReports) -> None:
    """It is the one that reports."""
    reports.set_reporting(True)


def test_the_first_step_is_told_at_once_and_those_behind_it_together() -> None:
    told = told_after((0.0, reporting), *steps(1, 9, 0.06, 0.01))
    assert told == [(0.01, "1"), (0.21, "2 3 4"), (0.41, "5 6 7"), (0.61, "8 9")]


def test_a_step_that_takes_longer_than_the_interval_is_told_at_once() -> None:
    assert told_after((0.0, reporting), *steps(1, 3, 0.5, 0.1)) == [(0.1, "1"), (0.6, "2"), (1.1, "3")]


def test_an_epoch_is_told_at_once_behind_its_steps() -> None:
    epoch = (0.04, lambda reports: reports.add(EpochProgress(epoch=1)))
    told = told_after((0.0, reporting), *steps(1, 3, 0.01, 0.01), epoch, (0.05, step(4)))
    assert told == [(0.01, "1"), (0.04, "2 3"), (0.04, "epoch 1"), (0.21, "4")]


def test_who_begins_to_report_tells_all_that_is_not_stored() -> None:
    stored = (0.55, lambda reports: reports.forget(2, 0))
    told = told_after(*steps(1, 5, 0.1), stored, (0.6, reporting), (0.7, step(6)), (0.8, step(7)))
    assert told == [(0.6, "3 4 5"), (0.7, "6"), (0.9, "7")]


def test_the_first_step_of_each_generation_is_told_at_once() -> None:
    told = told_after((0.0, reporting), (0.1, step(1)), (0.15, reporting), (0.2, step(2)))
    assert told == [(0.1, "1"), (0.15, "1"), (0.2, "2")]
    # Step 2 was to wait until 0.3.
    told = told_after((0.0, reporting), *steps(1, 2, 0.02, 0.1), (0.15, reporting), *steps(3, 4, 0.02, 0.2))
    assert told == [(0.1, "1"), (0.15, "1 2"), (0.2, "3"), (0.3, "4")]


def test_what_was_said_before_a_worker_reports_does_not_hold_its_first_step_up() -> None:
    """It says that it is ready, and reports from then on, before its loop has sent that."""
    ready = WorkerSessionRequest(steps=WorkerSteps(steps=[StepProgress(step=99)]))

    def begin(reports: ProgressReports) -> None:
        reports.tell_before(ready)
        reports.set_reporting(True)

    told = told_after(*steps(1, 2, 0.05), (0.15, begin), *steps(3, 4, 0.01, 0.2))
    assert told == [(0.15, "1 2"), (0.15, "99"), (0.15, "1 2"), (0.2, "3"), (0.4, "4")]


def test_who_does_not_report_tells_what_is_not_stored_when_it_must() -> None:
    assert told_after(*steps(1, 2, 0.1), (0.5, lambda reports: reports.tell_all())) == [(0.5, "1 2")]


def test_steps_that_are_made_again_are_not_told_of_their_first_making() -> None:
    undone = (0.55, lambda reports: reports.forget_after(3, 0))
    assert told_after(*steps(1, 5, 0.1), undone, (0.6, reporting)) == [(0.6, "1 2 3")]


def test_a_new_stream_begins_with_all_that_is_not_stored_and_each_step_has_its_age() -> None:
    pending = list[WorkerSessionRequest]()
    opened = (0.11, lambda reports: pending.extend(reports.pending()))
    told = told_after((0.0, reporting), *steps(1, 2, 0.05, 0.01), opened)
    assert told == [(0.01, "1")], "the gathered one went with the others"
    (message,) = pending
    assert [round(age_s, 3) for age_s in message.steps.ages_s] == [0.1, 0.05]


def test_large_steps_go_in_several_messages() -> None:
    """Of two that fill a message together the third begins the next; an epoch stands alone."""
    name = "m" * (MESSAGE_BYTES // 2)
    large = [(0.1 * number, step(number, {name: 1.0})) for number in range(1, 4)]
    epoch = (0.4, lambda reports: reports.add(EpochProgress(epoch=1)))
    told = told_after(*large, epoch, (0.5, step(4)), (1.0, reporting))
    assert told == [(1.0, "1 2"), (1.0, "3"), (1.0, "epoch 1"), (1.0, "4")]
