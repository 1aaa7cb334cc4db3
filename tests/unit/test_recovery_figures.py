"""What the recovery benchmark makes of a job's events and a rival's files."""

import io
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from benchmarks.measure import MET, MISSED
from benchmarks.recovery import chosen_parts
from benchmarks.recovery.entries import STEPS_NEEDED, entries_of
from benchmarks.recovery.growths import BOUNDS, Reading, growths
from benchmarks.recovery.running_job import RunningJob, Seen
from benchmarks.recovery.steps_file import Committed, StepsRead
from benchmarks.recovery.throughput import kept_part
from benchmarks.recovery.torchft_limits import Limits, best_of, sweep


def job_of(*events: dict[str, Any]) -> RunningJob:
    """A job that has told these events."""
    lines = io.StringIO("".join(json.dumps(event) + "\n" for event in events))
    job = RunningJob(cast(Any, SimpleNamespace(stdout=lines)))
    job._reader.join()
    return job


def formed(at_s: float, *workers: str, first: int = 0, number: int = 1) -> dict[str, Any]:
    told = [[worker, "node"] for worker in workers]
    return {
        "at_s": at_s,
        "kind": "GenerationFormed",
        "workers": told,
        "step": first,
        "generation": number,
    }


def step(at_s: float, number: int, generation: int = 1) -> dict[str, Any]:
    told = {"at_s": at_s, "kind": "StepCommitted", "step": number, "step_s": 0.02}
    return {**told, "generation": generation}


def test_a_job_has_recovered_with_the_first_step_without_the_victim() -> None:
    """A step that was under way when the victim was struck doesn't count, whenever it is told."""
    told = (
        step(2, 1),
        step(3.1, 2),
        formed(3.2, "a", number=2),
        step(3.25, 3),
        step(3.3, 4, 2),
        step(3.4, 5, 2),
    )
    job = job_of(formed(1, "a", "b"), *told)
    assert job.recovered_at_s("b", 3.0) == 3.3
    assert job.recovered_at_s("a", 3.0) is None


def joined(first: int, slower_ms: dict[int, int], last: int) -> RunningJob:
    """Of two workers one is killed and replaced by `c`, which enters after step `first`; steps take 20 ms.

    `slower_ms` says by how many more, by the step's number.
    """
    times_s, at_s = {}, 3.0
    for number in range(2, last + 1):
        at_s += (20 + slower_ms.get(number, 0)) / 1000
        times_s[number] = at_s
    return job_of(
        formed(1, "a", "b"),
        step(2, 1),
        formed(3, "a", first=1),
        *(step(times_s[number], number) for number in range(2, first)),
        formed(times_s[first] - 0.01, "a", "c", first=first),
        *(step(times_s[number], number) for number in range(first, last + 1)),
    )


def test_an_entry_costs_what_the_steps_around_it_take_longer() -> None:
    """`c` enters after step 10: 5 ms in step 10, 40 in 11, 15 in 12, and 3 less in 13 make 57 ms.

    Step 7 comes before the window of 3 and 12 steps, step 23 after it. The control's window are steps 43 to
    57: 30 ms more in one and 10 less in another make 20.
    """
    slower_ms = {7: 100, 10: 5, 11: 40, 12: 15, 13: -3, 23: 9, 43: 30, 57: -10, 58: 9}
    (entry,) = entries_of(joined(10, slower_ms, last=10 + STEPS_NEEDED).events)
    assert entry.around.undisturbed_s == pytest.approx(0.02)
    assert entry.around.cost_s == pytest.approx(0.057)
    assert entry.control.cost_s == pytest.approx(0.020)


def test_steps_that_are_slow_for_long_cost_nothing_by_an_entry() -> None:
    """All steps from the entry's window on take 30 ms: that is the undisturbed step of the moment."""
    slower_ms = dict.fromkeys(range(8, 200), 10)
    (entry,) = entries_of(joined(10, slower_ms, last=10 + STEPS_NEEDED).events)
    assert entry.around.undisturbed_s == pytest.approx(0.03)
    assert entry.around.cost_s == pytest.approx(0.0)
    assert entry.control.cost_s == pytest.approx(0.0)


def test_an_entry_counts_where_its_generation_made_all_the_steps_that_are_compared() -> None:
    """One that lost a member is none, nor one that has a step too few, or whose window a next one cuts."""
    assert entries_of(joined(10, {}, last=9 + STEPS_NEEDED).events) == []
    job = joined(10, {}, last=10 + STEPS_NEEDED)
    next_one = Seen(9.0, "GenerationFormed", (("a", "node"),), 9 + STEPS_NEEDED)
    assert entries_of([*job.events, next_one]) == []


def test_growth_is_that_of_readings_half_a_run_apart_after_the_first_ones() -> None:
    """From the 2nd of 5: 4 to 8 descriptors in two deaths, 5 to 8 in two, thus 2 and 1.5 a death."""
    life = [
        Reading(number, {"descriptors": held, "threads": 7, "megabytes": 50 + number / 100})
        for number, held in enumerate([99, 4, 5, 8, 8], start=1)
    ]
    descriptors, threads, megabytes = growths({("an agent", 1): life}, 2, "death")
    assert descriptors.name == "descriptors of an agent, more with each death from number 2 to 5"
    assert (descriptors.samples, descriptors.unit) == ([2.0, 1.5], "descriptors a death")
    assert threads.samples == [0.0, 0.0]
    assert megabytes.samples == [pytest.approx(0.01), pytest.approx(0.01)]


def test_processes_of_a_kind_are_told_together_but_not_compared() -> None:
    """Two agents that hold 10 and 90 all the time: nothing has grown, and six samples say so."""
    readings = {
        ("an agent", pid): [Reading(n, dict.fromkeys(BOUNDS, held)) for n in range(1, 7)]
        for pid, held in ((1, 10.0), (2, 90.0))
    }
    told = growths(readings, 1, "death")
    assert [(one.samples, one.verdict) for one in told] == [([0.0] * 6, MET)] * 3


def test_a_descriptor_a_fifth_death_is_found() -> None:
    """Of 60 deaths the agent meets each fifth; from the 15th on 46 readings are 23 pairs, 23 deaths apart."""
    life = [Reading(n, {"descriptors": n // 5, "threads": 0, "megabytes": 0}) for n in range(1, 61)]
    descriptors, *others = growths({("an agent", 1): life}, 15, "death")
    assert (len(descriptors.samples), descriptors.verdict) == (23, MISSED)
    assert {round(sample * 23) for sample in descriptors.samples} == {4, 5}
    assert [one.verdict for one in others] == [MET, MET]


def test_a_process_that_was_not_there_all_the_time_is_no_growth() -> None:
    held = dict.fromkeys(BOUNDS, 1.0)
    readings = {
        ("the trainer", 1): [Reading(1, held)],
        ("the registry", 2): [Reading(1, held), Reading(2, held)],
    }
    with pytest.raises(SystemExit, match="not there from the first death to the last: the trainer"):
        growths(readings, 1, "death")


def test_steps_of_all_workers_are_read_by_time_and_unfinished_lines_later(tmp_path: Path) -> None:
    (tmp_path / "7.steps").write_text("10.5 1 5\n12.5 2 5\n13.")
    steps = StepsRead(tmp_path)
    assert steps.all() == [Committed(7, 10.5, 1, 5), Committed(7, 12.5, 2, 5)]
    (tmp_path / "7.steps").write_text("10.5 1 5\n12.5 2 5\n13.5 3 4\n")
    (tmp_path / "8.steps").write_text("11.5 1 5\n")
    assert [(one.pid, one.at_s, one.step) for one in steps.all()] == [
        (7, 10.5, 1),
        (8, 11.5, 1),
        (7, 12.5, 2),
        (7, 13.5, 3),
    ]


def test_a_fault_keeps_what_its_lost_seconds_leave_of_thirty() -> None:
    """3 of 10 s lost at 40 steps/s: 280 steps instead of 400."""
    assert kept_part(38.0, 28.0, 42.0, 10.0) == pytest.approx(0.9)
    assert kept_part(40.0, 34.0, 40.0, 20.0) == pytest.approx(0.9), "a longer window hides nothing"
    assert kept_part(40.0, 40.0, 40.0, 10.0) == 1


def test_a_rivals_best_limits_are_the_fastest_of_those_it_came_back_with() -> None:
    """The join limit is swept at the best limit of collectives; one lost fault outweighs any speed."""
    times = {
        Limits(200, 0.2): [0.1, 0.1],
        Limits(200, 0.5): [0.9, 0.5, 0.6],
        Limits(200, 1.0): [1.0, 1.1, 1.2],
        Limits(100, 0.5): [0.5, 0.6, 0.7],
        Limits(500, 0.5): [0.2, 0.2, 9.0],
    }
    asked: list[Limits] = []

    def measure(limits: Limits) -> list[float]:
        asked.append(limits)
        return times[limits]

    swept = sweep(measure, quick=False)
    assert (swept, asked) == (times, list(times))
    assert best_of(swept) == Limits(100, 0.5)


def test_an_unknown_part_is_refused_with_those_there_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PARTS", "kill freezer")
    with pytest.raises(SystemExit, match="no part freezer; there are kill, restarted, join"):
        chosen_parts()
