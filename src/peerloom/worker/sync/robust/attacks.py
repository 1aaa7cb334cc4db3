"""What hostile workers of an experiment send in the place of their gradients: pure functions.

Labels that were flipped are no matter of gradients: whoever trains on them sends what comes out.
"""

from collections.abc import Sequence

import torch

NONE, SIGN_FLIP, SCALING, NOISE = "none", "sign flip", "scaling", "noise"
LABEL_FLIP, ALIE, INNER_PRODUCT = "label flip", "ALIE", "inner product"
ATTACKS = (NONE, SIGN_FLIP, SCALING, NOISE, LABEL_FLIP, ALIE, INNER_PRODUCT)
SCALE = 100.0
# ALIE (Baruch, Baruch, Goldberg, NeurIPS 2019) lies by so many deviations of the honest votes that it hides
# among them. The paper's bound is less than half of it for so few workers: this is a bolder lie.
LITTLE = 1.5
# Inner product manipulation (Xie, Koyejo, Gupta, UAI 2019): so much of the honest mean, the other way.
AGAINST = 0.5
NOISE_DEVIATION = 1.0  # of each coordinate of a mean gradient; honest ones are some hundredths


def attacked(
    attack: str, votes: torch.Tensor, hostile: Sequence[int], chance: torch.Generator
) -> torch.Tensor:
    """The votes [n, d] with those of the `hostile` rows replaced."""
    assert attack in ATTACKS, attack
    said = votes.clone()
    rows = list(hostile)
    if attack == SIGN_FLIP:
        said[rows] = -votes[rows]
    elif attack == SCALING:
        said[rows] = SCALE * votes[rows]
    elif attack == NOISE:
        said[rows] = NOISE_DEVIATION * torch.randn(len(rows), votes.shape[1], generator=chance)
    elif attack in (ALIE, INNER_PRODUCT) and rows:
        honest = votes[[row for row in range(len(votes)) if row not in rows]]
        mean = honest.mean(0)
        said[rows] = mean - LITTLE * honest.std(0) if attack == ALIE else -AGAINST * mean
    return said
