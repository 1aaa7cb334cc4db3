"""Histories by seed: whatever goes wrong, what was promised holds.

PEERLOOM_HISTORIES says how many (default: 200); `make simulate-faults` runs many more.
"""

import os

import pytest

from tests.simulation.__main__ import told
from tests.simulation.shrinking import shrink
from tests.simulation.simulate import run_history

HISTORIES = int(os.environ.get("PEERLOOM_HISTORIES", "200"))
BLOCK = 25


@pytest.mark.timeout(300)
@pytest.mark.parametrize("first", range(0, HISTORIES, BLOCK))
def test_every_promise_is_kept(first: int) -> None:
    for seed in range(first, min(first + BLOCK, HISTORIES)):
        outcome = run_history(seed)
        if outcome.broken:
            pytest.fail(told(shrink(outcome)), pytrace=False)


def test_a_history_without_faults_ends_with_a_model() -> None:
    outcome = run_history(1, faults=[])
    assert outcome.broken == []
    assert all("SUCCEEDED" in state for state in outcome.states)
