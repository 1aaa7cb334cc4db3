"""What the experiment's hostile workers send, by hand, and that a rehearsed training learns."""

import pytest
import torch

from peerloom.experiments import byzantine
from peerloom.kit.robust_rules import AUTO, OFF, TRIMMED_MEAN
from peerloom.worker.sync.robust.attacks import (
    ALIE,
    ATTACKS,
    INNER_PRODUCT,
    LABEL_FLIP,
    NONE,
    SCALING,
    SIGN_FLIP,
    attacked,
)
from peerloom.worker.sync.robust.rehearsal import Aggregator, Rehearsal

VOTES = torch.tensor([[1.0, 0.0], [3.0, 2.0], [5.0, 4.0], [9.0, 9.0]])


@pytest.mark.parametrize(
    ("attack", "said"),
    [
        (NONE, [9.0, 9.0]),
        (LABEL_FLIP, [9.0, 9.0]),  # its labels were others already
        (SIGN_FLIP, [-9.0, -9.0]),
        (SCALING, [900.0, 900.0]),
        (ALIE, [0.0, -1.0]),  # honest: mean 3 and 2, deviation 2: less by 1.5 of them
        (INNER_PRODUCT, [-1.5, -1.0]),  # half of 3 and of 2, the other way
    ],
)
def test_an_attack_replaces_the_hostile_votes_and_no_other(attack: str, said: list[float]) -> None:
    chance = torch.Generator().manual_seed(1)
    found = attacked(attack, VOTES, [3], chance)
    assert found.tolist() == [*VOTES[:3].tolist(), said]


def test_the_experiment_knows_each_attack() -> None:
    assert byzantine.ATTACKS == ATTACKS


def test_without_a_rule_votes_weigh_as_their_samples() -> None:
    """(1 + 3 * 3 + 5 * 5 + 9) / 10 and (0 + 2 * 3 + 4 * 5 + 9) / 10; trimmed: (3 + 5) / 2 and (2 + 4) / 2."""
    there, counts = [0, 1, 2, 3], [1, 3, 5, 1]
    assert Aggregator(OFF).gradient(VOTES, there, counts).tolist() == pytest.approx([4.4, 3.5])
    assert Aggregator(TRIMMED_MEAN).gradient(VOTES, there, counts).tolist() == [4.0, 3.0]


def test_two_scaling_liars_of_eight_stop_a_sum_and_not_a_trimmed_mean() -> None:
    """Three epochs; chance gives 0.1."""
    spoilt = Rehearsal(8, 2, OFF, SCALING, seed=0, epochs=3).run()
    kept = Rehearsal(8, 2, TRIMMED_MEAN, SCALING, seed=0, epochs=3).run()
    assert spoilt["accuracy"] < 0.3
    assert kept["accuracy"] > 0.7


def test_auto_learns_beside_liars_who_hide_among_the_votes() -> None:
    """ALIE spoils a trimmed mean of eight, and not one of the votes whose histories agree."""
    hidden = Rehearsal(8, 2, TRIMMED_MEAN, ALIE, seed=1, epochs=5).run()
    found = Rehearsal(8, 2, AUTO, ALIE, seed=1, epochs=5).run()
    assert found["accuracy"] > hidden["accuracy"] + 0.15


def test_audits_find_liars_and_nobody_else() -> None:
    """Who lies from the second step on is met while audits are dense."""
    found = Rehearsal(8, 2, TRIMMED_MEAN, ALIE, seed=1, audits=True).run()
    assert found["accuracy"] > 0.9
    assert all(step is not None and step < 24 for step in found["dismissed_at"])
    assert (found["honest_accused"], found["honest_dismissed"]) == (0, 0)
