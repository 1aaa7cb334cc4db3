"""What the recovery benchmark makes of a job's events and a rival's files."""

import io
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from benchmarks.recovery import chosen_parts
from benchmarks.recovery.running_job import RunningJob
from benchmarks.recovery.steps_file import Committed, StepsRead
from benchmarks.recovery.throughput import kept_part
from benchmarks.recovery.torchft_limits import Limits, best_of, sweep


def job_of(*events: dict[str, Any]) -> RunningJob:
    """A job that has told these events."""
    lines = io.StringIO("".join(json.dumps(event) + "\n" for event in events))
    job = RunningJob(cast(Any, SimpleNamespace(stdout=lines)))
    job._reader.join()
    return job


def formed(at_s: float, *workers: str, first: int = 0) -> dict[str, Any]:
    told = [[worker, "node"] for worker in workers]
    return {"at_s": at_s, "kind": "GenerationFormed", "workers": told, "step": first}


def step(at_s: float, number: int) -> dict[str, Any]:
    return {"at_s": at_s, "kind": "StepCommitted", "step": number, "step_s": 0.02}


def test_a_job_has_recovered_with_the_first_step_without_the_victim() -> None:
    """A step that was under way when the victim was struck doesn't count."""
    job = job_of(formed(1, "a", "b"), step(2, 1), step(3.1, 2), formed(3.2, "a"), step(3.3, 3), step(3.4, 4))
    assert job.recovered_at_s("b", 3.0) == 3.3
    assert job.recovered_at_s("a", 3.0) is None


def test_the_longest_pause_of_a_join_counts_and_only_members_gained_make_one() -> None:
    """It is announced while step 3 is made, entered after step 4, and step 6 is the one that waits."""
    times_s = {3: 4.6, 4: 4.7, 5: 4.9, 6: 5.9, 7: 6.0, 8: 6.1}
    job = job_of(
        formed(1, "a", "b"),
        step(2, 1),
        formed(3, "a", first=1),
        step(4, 2),
        formed(4.5, "a", "c", first=4),
        *(step(at_s, number) for number, at_s in times_s.items()),
    )
    assert job.stops_at_joins() == [(pytest.approx(1.0), 0.02)]


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
