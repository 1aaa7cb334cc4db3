"""What trackers are told of a job's events, and where they are told it."""

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from peerloom import EpochFinished, FailedPreconditionError, InvalidArgumentError, StateChanged, StepCommitted
from peerloom.client.tracking.destinations import shown, tracker_for
from peerloom.client.tracking.track_entries import EntryMaker, TrackEntry

TIME = datetime(2026, 3, 1, tzinfo=UTC)
STEP = StepCommitted(1, "job-1", TIME, 7, None, 1, 0.5, 64, 640.0, 0.1, 0.075, 0.025, 1000)


def test_a_step_has_its_parts_as_figures_and_no_line() -> None:
    assert EntryMaker().entry(STEP) == TrackEntry(
        1,
        TIME.timestamp(),
        7,
        {
            "train/loss": 0.5,
            "train/epoch": 1,
            "throughput/samples_per_s": 640.0,
            "time/step_s": 0.1,
            "time/compute_s": 0.075,
            "time/communication_s": 0.025,
            "network/communicated_bytes": 1000,
        },
    )


def test_what_happens_between_steps_stands_at_the_newest_step_and_time() -> None:
    maker = EntryMaker()
    maker.entry(STEP)
    entry = maker.entry(EpochFinished(2, "job-1", None, 1, "F1/macro\n", 0.25, 0.75, 10))
    assert (entry.step, entry.time_s, entry.kind) == (7, TIME.timestamp(), "epochs")
    assert entry.figures == {"test/F1_macro_": 0.25, "epoch/loss": 0.75}


@given(
    st.lists(st.text(st.characters(exclude_categories=["Cc", "Zl", "Zp"]), max_size=30)), st.integers(0, 200)
)
def test_the_newest_lines_are_whole_and_within_the_limit(reasons: list[str], limit: int) -> None:
    maker = EntryMaker()
    for number, reason in enumerate(reasons):
        maker.entry(StateChanged(number + 1, "job-1", TIME, "waiting", reason))
    found = maker.newest_lines(limit)
    assert len(found) <= limit
    said = [f"2026-03-01 00:00:00 step 0: waiting{f': {reason}' if reason else ''}" for reason in reasons]
    kept = found.split("\n") if found else []
    assert kept == said[len(said) - len(kept) :]
    assert len(kept) == len(said) or len(found) + len(said[-len(kept) - 1]) + 2 > limit


@pytest.mark.parametrize(
    "place", ["", "mlflow", "mlflow:", "comet:x", "wandb:?mode=offline", "wandb:p?mode=on", "wandb:p?x=1"]
)
def test_a_place_that_is_none_is_refused(place: str) -> None:
    with pytest.raises(InvalidArgumentError, match="track"):
        tracker_for(place)


def test_a_missing_library_is_named_with_what_brings_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("peerloom.client.tracking.destinations.find_spec", lambda name: None)
    with pytest.raises(FailedPreconditionError, match=r"pip install 'peerloom\[track\]' \(or mlflow-skinny"):
        tracker_for("mlflow:http://127.0.0.1:9")


def test_names_and_passwords_in_a_place_aren_t_shown() -> None:
    assert shown("mlflow:https://me:secret@lab:5000/x") == "mlflow:https://lab:5000/x"
    assert shown("tensorboard:runs/me@home") == "tensorboard:runs/me@home"
