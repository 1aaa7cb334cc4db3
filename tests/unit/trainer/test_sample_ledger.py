"""The ledger tells an exact record from one with a gap or a repeat, whatever happened on the way."""

from hypothesis import given
from hypothesis import strategies as st

from peerloom.services.trainer.jobs.sample_ledger import STRETCHES_KEPT, add_step, advance, go_back, judge
from peerloom.v1.trainer_pb2 import Ledger, StepProgress
from peerloom.worker.schedule import Schedule


def step_of(schedule: Schedule, number: int, generation: int = 1, workers: int = 3) -> StepProgress:
    """What a worker reports of the step `number` (from 1)."""
    first, end = schedule.bounds(number - 1)
    return StepProgress(
        step=number,
        epoch=schedule.epoch_of(number - 1) + 1,
        first_sample=first,
        samples=end - first,
        generation=generation,
        workers=workers,
    )


def filled(schedule: Schedule, numbers: list[int]) -> Ledger:
    ledger = Ledger(training_samples=schedule.samples)
    for number in numbers:
        add_step(ledger, step_of(schedule, number))
    return ledger


TEN_BY_FOUR = Schedule(samples=10, batch_size=4, epochs=2, seed=0)  # steps of 4, 4 and 2 samples


def test_a_generation_is_one_stretch_over_its_epochs() -> None:
    ledger = filled(TEN_BY_FOUR, [1, 2, 3, 4, 5])
    assert len(ledger.stretches) == 1
    stretch = ledger.stretches[0]
    assert (stretch.first_step, stretch.last_step, stretch.workers) == (1, 5, 3)
    assert (stretch.first_epoch, stretch.first_sample) == (1, 0)
    assert (stretch.last_epoch, stretch.end_sample) == (2, 8)
    assert judge(ledger) == (True, "exact: 1 epoch of 10 samples and 8 samples of epoch 2, each used once")


def test_says_what_is_missing_at_the_end() -> None:
    ledger = filled(TEN_BY_FOUR, [1, 2, 3, 4, 5])
    words = "from sample 8 of epoch 2 to sample 0 of epoch 3: 2 samples are missing"
    assert judge(ledger, epochs=2) == (False, words)
    add_step(ledger, step_of(TEN_BY_FOUR, 6))
    assert judge(ledger, epochs=2) == (True, "exact: 2 epochs of 10 samples, each used once")


def test_says_which_step_is_missing_or_there_twice() -> None:
    gap = "from sample 4 of epoch 1 to sample 8 of epoch 1: 4 samples are missing"
    assert judge(filled(TEN_BY_FOUR, [1, 3, 4])) == (False, gap)
    twice = "from sample 4 of epoch 1 to sample 8 of epoch 1: 4 samples are used twice"
    assert judge(filled(TEN_BY_FOUR, [1, 2, 2, 3])) == (False, twice)


def test_without_the_number_of_samples_nothing_is_proved() -> None:
    assert judge(Ledger()) == (False, "not known: no worker has told how many samples there are")


def test_going_back_discards_what_was_lost_and_no_more() -> None:
    """Five steps, the checkpoint has two: 2 + 4 samples are used again."""
    ledger = filled(TEN_BY_FOUR, [1, 2, 3, 4])
    go_back(ledger, 2, TEN_BY_FOUR.batch_size)
    assert ledger.discarded_samples == 6
    assert (ledger.stretches[0].last_epoch, ledger.stretches[0].end_sample) == (1, 8)
    for number in (3, 4, 5, 6):
        add_step(ledger, step_of(TEN_BY_FOUR, number, generation=2))
    assert judge(ledger, epochs=2)[0]


def test_many_generations_do_not_make_the_record_grow() -> None:
    schedule = Schedule(samples=10, batch_size=4, epochs=400, seed=0)
    ledger = Ledger(training_samples=10)
    for number in range(1, schedule.total_steps + 1):
        add_step(ledger, step_of(schedule, number, generation=number))
    assert len(ledger.stretches) == STRETCHES_KEPT
    assert ledger.stretches[0].last_generation == schedule.total_steps - STRETCHES_KEPT + 1
    assert judge(ledger, epochs=400)[0]


@given(st.integers(1, 60), st.integers(1, 25), st.integers(0, 30), st.integers(1, 30))
def test_advancing_is_making_the_steps(samples: int, batch: int, before: int, steps: int) -> None:
    schedule = Schedule(samples, batch, 100, 0)
    first, _ = schedule.bounds(before)
    last = before + steps - 1
    expected = (schedule.epoch_of(last) + 1, schedule.bounds(last)[1])
    assert advance(schedule.epoch_of(before) + 1, first, steps, samples, batch) == expected


change = st.tuples(
    st.sampled_from(["death", "death of the reporter", "join", "all die"]),
    st.integers(1, 7),
    st.integers(0, 3),
)


@given(st.integers(1, 40), st.integers(1, 12), st.lists(change, max_size=12))
def test_any_deaths_and_joins_leave_each_sample_used_once(
    samples: int, batch: int, changes: list[tuple[str, int, int]]
) -> None:
    """Each change comes after some steps. The record holds a step when it is first reported, so a step that
    died with its reporter and is made again counts once; when all die, the checkpoint is some steps back.
    """
    schedule = Schedule(samples, batch, 4, 0)
    ledger = Ledger(training_samples=samples)
    done = recorded = 0
    generation, workers, checkpoint = 1, 3, 0

    def make(steps: int) -> None:
        nonlocal done, recorded
        for _ in range(min(steps, schedule.total_steps - done)):
            done += 1
            if done > recorded:  # else it was reported before it was lost: the trainer passes it over
                recorded = done
                add_step(ledger, step_of(schedule, done, generation, workers))

    for kind, steps, back in changes:
        make(steps)
        generation += 1
        if kind == "join":
            workers += 1
        elif kind == "all die":
            checkpoint = max(checkpoint, done - back)
            done = recorded = checkpoint
            go_back(ledger, checkpoint, batch)
        else:
            workers = max(1, workers - 1)
            done = max(0, done - (kind == "death of the reporter"))  # the survivors hadn't committed it
        assert judge(ledger)[0]
    make(schedule.total_steps)
    assert judge(ledger, epochs=4) == (True, f"exact: 4 epochs of {samples} samples, each used once")
