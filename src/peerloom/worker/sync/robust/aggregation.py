"""Which rule a step's votes get, and its result for one part of the gradient."""

from collections.abc import Sequence

import torch

from peerloom.kit.robust_rules import CENTRED_CLIPPING, KRUM, MEDIAN
from peerloom.worker.sync.robust import vote_rules as rules
from peerloom.worker.sync.robust.votes import Votes

LEAST_OWNERS = 5  # Krum needs 2 liars + 3, and of fewer a third is one liar, whom one odd vote looks like
MEAN = "mean"
_BY_DISTANCE = (KRUM, CENTRED_CLIPPING)


def rule_for(asked: str, owners: int, voters: int) -> str:
    """The rule of a step in a group of so many owners, `voters` of them with samples; MEAN under five owners.

    Where five are there and fewer vote, as in the short last batch of an epoch, it is the median: a single
    step without a rule would be enough for a lie. Of two votes or one it bounds nothing.
    """
    if owners < LEAST_OWNERS:
        return MEAN
    if voters < LEAST_OWNERS:
        return MEDIAN
    return asked


def needs_distances(rule: str) -> bool:
    """Whether the rule compares whole votes, so that the parts' Gram matrices have to be added up first."""
    return rule in _BY_DISTANCE


def of_part(rule: str, votes: Votes) -> torch.Tensor:
    """The gradient [d] of a part by a rule that looks at each coordinate by itself."""
    if rule == MEAN:
        return rules.weighted_mean(votes.values, votes.samples)
    if rule == MEDIAN:
        return rules.median(votes.values)
    return rules.trimmed_mean(votes.values, rules.tolerated(len(votes.values)))


def of_part_without(apart: Sequence[str], votes: Votes) -> torch.Tensor:
    """The gradient [d] of a part by `auto`: the trimmed mean of all but the owners who stand `apart`.

    Each that is left out is one liar less to trim, so a coordinate stays within what honest owners say as
    long as no honest one was left out in the place of a liar.
    """
    every = range(len(votes.owners))
    kept = [place for place in every if votes.owners[place] not in apart] or list(every)
    left_out = len(votes.owners) - len(kept)
    return rules.trimmed_mean(votes.values[kept], max(0, rules.tolerated(len(votes.owners)) - left_out))


def part_products(votes: Votes, names: Sequence[str]) -> torch.Tensor:
    """The part's Gram matrix of all voters `names`, on the processor; NaN for a refused vote."""
    products = torch.full((len(names), len(names)), torch.nan, dtype=torch.float64)
    places = torch.tensor([names.index(owner) for owner in votes.owners], dtype=torch.long)
    if len(places):
        products[places[:, None], places] = rules.gram(votes.values, rules.median(votes.values)).cpu()
    return products


def weights_of(rule: str, products: torch.Tensor) -> torch.Tensor:
    """The coefficients of all voters, float64, from the sum of the parts' Gram matrices; 0 for a refused one.

    All are 0 when every vote was refused.
    """
    kept = products.diagonal().isfinite().nonzero().flatten()
    weights = torch.zeros(len(products), dtype=torch.float64)
    if len(kept):
        seen = products[kept[:, None], kept]
        liars = rules.tolerated(len(kept))
        weights[kept] = rules.krum(seen, liars) if rule == KRUM else rules.centred_clipping(seen)
    return weights


def of_part_by(weights: torch.Tensor, votes: Votes, names: Sequence[str]) -> torch.Tensor:
    """The gradient [d] of a part by the coefficients of all voters `names`."""
    own = weights[[names.index(owner) for owner in votes.owners]].to(votes.values.device)
    return rules.combined(votes.values, rules.median(votes.values), own)
