"""What `make chaos` holds a job's losses to."""

from math import nan

import pytest

from benchmarks.chaos.promises import LOSS_TOLERANCE, check_losses

UNDISTURBED = [2.0, 0.5, 0.1]


def test_losses_within_the_tolerance_keep_the_promise() -> None:
    found = {1: 2.0 + 0.9 * LOSS_TOLERANCE, 2: 0.5 - 0.9 * LOSS_TOLERANCE, 3: 0.1}
    assert check_losses(found, UNDISTURBED) == []


@pytest.mark.parametrize("loss", [0.5 + 1.1 * LOSS_TOLERANCE, 0.5 - 1.1 * LOSS_TOLERANCE, nan])
def test_a_loss_above_below_or_not_a_number_breaks_it(loss: float) -> None:
    [broken] = check_losses({1: 2.0, 2: loss}, UNDISTURBED)
    assert broken.startswith("the loss of epoch 2 is")
