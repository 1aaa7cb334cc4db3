"""The highest of many scores: the same as by sorting, whatever is tied."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from peerloom.services.selector.policies.ranking import highest, kth_highest

FEW_VALUES = st.sampled_from([0.0, 0.0, 0.0, -1.0, 0.5, 2.0, float("inf"), -float("inf")])


@given(st.data(), st.lists(FEW_VALUES | st.floats(allow_nan=False), min_size=1, max_size=400))
def test_the_kth_highest_is_that_of_sorting(data: st.DataObject, scores: list[float]) -> None:
    count = data.draw(st.integers(1, len(scores)))
    assert kth_highest(np.array(scores), count) == sorted(scores, reverse=True)[count - 1]


@pytest.mark.parametrize("proven", [0, 3, 10, 5000])
def test_the_proven_come_first_and_chance_fills_up_with_the_unproven(proven: int) -> None:
    scores = np.zeros(100_000)
    scores[np.arange(proven) * 7] = np.arange(1, proven + 1)
    chosen, tied = highest(scores, 10, np.random.default_rng(1))
    best = [7 * place for place in reversed(range(proven))][:10]
    assert chosen[: len(best)].tolist() == best
    assert len(set(chosen.tolist())) == 10
    assert (scores[chosen[len(best) :]] == 0).all()
    assert tied == (1 if proven >= 10 else 100_000 - proven)
