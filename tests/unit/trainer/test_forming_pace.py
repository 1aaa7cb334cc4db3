"""How soon generations are formed that make no step."""

import pytest

from peerloom.services.trainer.generations.pace import FormingPace, pause_after_s


@pytest.mark.parametrize(
    ("fruitless", "pause_s"),
    [(0, 0), (1, 0), (5, 0), (6, 0.1), (7, 0.2), (9, 0.8), (11, 3.2), (12, 5.0), (10**6, 5.0)],
)
def test_the_first_five_are_formed_at_once_and_then_pauses_double(fruitless: int, pause_s: float) -> None:
    assert pause_after_s(fruitless) == pytest.approx(pause_s)


def test_a_step_ends_the_pauses() -> None:
    pace = FormingPace()
    for number in range(7):  # all at step 3: after the seventh it is 0.2 s
        assert (pace.left_s(3, 10.0) <= 0) == (number < 6)
        pace.formed(3, 10.0)
    assert pace.left_s(3, 10.0) == pytest.approx(0.2)
    assert pace.left_s(3, 10.15) == pytest.approx(0.05)
    assert pace.left_s(4, 10.0) == 0.0
    pace.formed(4, 10.0)
    assert pace.left_s(4, 10.0) <= 0


def test_a_job_that_went_back_counts_on() -> None:
    """Steps that were taken back and made again are no progress before they are beyond the last."""
    pace = FormingPace()
    for _ in range(6):
        pace.formed(9, 0.0)
    pace.formed(5, 0.0)
    assert pace.left_s(5, 0.0) == pytest.approx(0.2)
