"""What the recovery benchmark makes of a job's events and a rival's files."""

import io
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from benchmarks.recovery import chosen_parts
from benchmarks.recovery.running_job import RunningJob
from benchmarks.recovery.steps_file import Committed, read_steps


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


def test_steps_of_all_workers_are_read_by_time_and_unfinished_lines_left(tmp_path: Path) -> None:
    (tmp_path / "7.steps").write_text("10.5 1 5\n12.5 2 5\n13.")
    (tmp_path / "8.steps").write_text("11.5 1 5\n")
    found = [Committed(7, 10.5, 1, 5), Committed(8, 11.5, 1, 5), Committed(7, 12.5, 2, 5)]
    assert read_steps(tmp_path) == found


def test_an_unknown_part_is_refused_with_those_there_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PARTS", "kill freezer")
    with pytest.raises(SystemExit, match="no part freezer; there are kill, restarted, join"):
        chosen_parts()
