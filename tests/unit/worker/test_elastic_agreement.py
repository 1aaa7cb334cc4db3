"""What the workers of a loop tell one another with a step, and what follows: by rows that all of them see."""

import pytest

from peerloom.errors import FailedPreconditionError, InvalidArgumentError
from peerloom.worker.elastic.agreement import Row, verdict

HERE, LEFT = 0, 1


def test_a_step_counts_while_all_do_the_same_and_one_who_has_left_ends_the_loop() -> None:
    assert verdict([(HERE, 0b11, 7), (HERE, 0b11, 7)], step=0)
    assert not verdict([(HERE, 0b11, 7), (LEFT, 0, 0)], step=4), "who has left says no more"
    assert not verdict([(LEFT, 0, 0)], step=4)


@pytest.mark.parametrize(
    ("rows", "step", "error", "message"),
    [
        ([(LEFT, 0, 0), (HERE, 1, 7)], 0, FailedPreconditionError, "before its first step"),
        ([(HERE, 0b01, 7), (HERE, 0b11, 7)], 4, InvalidArgumentError, "After step 4 .*run.steps"),
        ([(HERE, 1, 7), (HERE, 1, 8)], 4, InvalidArgumentError, "After step 4 .*samplers.*set_epoch"),
    ],
)
def test_what_differs_is_said(rows: list[Row], step: int, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        verdict(rows, step)
