"""How long a broken line is opened again: pauses that double up to a ceiling, then the error itself."""

import pytest

from peerloom.client.patience import Patience, next_pause_s
from peerloom.errors import UnavailableError


@pytest.mark.parametrize(
    ("attempts", "pause_s"), [(0, 0.1), (1, 0.2), (2, 0.4), (4, 1.6), (5, 2.0), (100_000, 2.0)]
)
def test_pauses_double_up_to_two_seconds(attempts: int, pause_s: float) -> None:
    assert next_pause_s(attempts, 0.0, 60.0) == pytest.approx(pause_s)


@pytest.mark.parametrize(("lost_s", "gives_up"), [(0.0, False), (59.9, False), (60.0, True), (61.0, True)])
def test_it_gives_up_after_the_limit(lost_s: float, gives_up: bool) -> None:
    assert (next_pause_s(3, lost_s, 60.0) is None) is gives_up


async def test_without_patience_the_first_error_comes_out() -> None:
    error = UnavailableError("gone")
    with pytest.raises(UnavailableError) as caught:
        await Patience(0.0).wait(error)
    assert caught.value is error
