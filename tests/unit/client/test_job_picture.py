"""A job's picture in a notebook: well-formed, to scale, and bounded."""

from datetime import UTC, datetime
from xml.etree import ElementTree

import pytest

from peerloom import (
    EpochFinished,
    FailedPreconditionError,
    GenerationFormed,
    StateChanged,
    StepCommitted,
    Worker,
    WorkerLost,
)
from peerloom.client.notebook.job_picture import JobPicture
from peerloom.client.notebook.live_display import show_events
from peerloom.kit.clock import ManualClock

AT = (1, "job-1", datetime(2026, 3, 1, tzinfo=UTC))
ANNA, BERT, CARL = (Worker(f"worker-{name}", name, name, 0, False, "") for name in ("anna", "bert", "<carl>"))
SVG = "{http://www.w3.org/2000/svg}"


def step(number: int, loss: float, total: int | None = 4) -> StepCommitted:
    return StepCommitted(*AT, number, total, 1, loss, 64, 640.0, 0.1, 0.075, 0.025, 1000)


def drawn(picture: JobPicture) -> ElementTree.Element:
    return ElementTree.fromstring(picture.html().replace("&middot;", "·"))


def test_before_the_first_step_there_is_a_line_without_a_picture() -> None:
    picture = JobPicture("job-1")
    picture.apply(StateChanged(*AT, "no_compute", "nobody <gave> a slot"))
    root = drawn(picture)
    assert "".join(root.itertext()) == "job-1 no compute: nobody <gave> a slot"
    assert root.find(f"{SVG}svg") is None


def test_losses_and_metrics_are_lines_over_the_whole_picture() -> None:
    """640 by 200 with a margin of 8: step 4 of 4 is at 632, the greatest value at 8, the least at 192."""
    picture = JobPicture("job-1")
    for number, loss in ((1, 2.0), (2, 1.5), (3, float("nan"))):
        picture.apply(step(number, loss))
    picture.apply(EpochFinished(*AT, 1, "accuracy", 0.5, 1.0, 10))
    picture.apply(step(4, 1.0))
    picture.apply(EpochFinished(*AT, 2, "accuracy", 0.75, 1.0, 10))
    root = drawn(picture)
    lines = [one.attrib["points"] for one in root.iter(f"{SVG}polyline")]
    assert lines == ["164.0,8.0 320.0,100.0 632.0,192.0", "476.0,192.0 632.0,8.0"]
    said = "".join(root.find("p").itertext())  # type: ignore[union-attr]  # it is there
    assert said == "job-1 queued · step 4 of 4 · loss 1.0000 · accuracy 0.7500 · 640 samples/s"


def test_who_was_lost_and_who_joined_is_a_line_at_its_step_and_a_first_generation_is_none() -> None:
    picture = JobPicture("job-1")
    picture.apply(GenerationFormed(*AT, 1, (ANNA, BERT), "gloo", 1))
    picture.apply(step(1, 2.0))
    picture.apply(WorkerLost(*AT, ANNA, "killed"))
    picture.apply(step(2, 1.0))
    picture.apply(GenerationFormed(*AT, 2, (BERT, CARL), "gloo", 3))
    marks = [
        (float(one.attrib["x1"]), one.findtext(f"{SVG}title")) for one in drawn(picture).iter(f"{SVG}line")
    ]
    assert marks == [(164.0, "lost worker-anna on anna: killed"), (320.0, "<carl> joined generation 2")]


def test_a_long_job_s_picture_stays_small() -> None:
    picture = JobPicture("job-1")
    for number in range(1, 20_001):
        picture.apply(step(number, 1.0, None))
    assert len(picture.html()) < 30_000


def test_outside_of_a_notebook_it_says_what_does_it_there() -> None:
    with pytest.raises(FailedPreconditionError, match="peerloom jobs watch job-1"):
        show_events("job-1", [], ManualClock())
