"""Answers of several nodes to the same inputs, combined, and who stands apart: pure functions."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from peerloom.client.types.inference import Combination
from peerloom.errors import InvalidArgumentError

DEVIATION_LIMIT = 0.05
_Array = npt.NDArray[Any]


@dataclass(frozen=True, eq=False)
class Combined:
    """The combined outputs, how far the nodes disagree (0 to 1), and those that stand apart."""

    outputs: _Array
    disagreement: float
    deviating: tuple[str, ...]


def combine(answers: Mapping[str, _Array], how: Combination) -> Combined:
    """The mean of the nodes' class probabilities [n, classes], or the classes [n] that most vote for.

    A node deviates when its probabilities are on average over 0.05 (total variation) from the median node's,
    and there are at least three, so that a majority exists. Raises InvalidArgumentError when the answers
    aren't rows of at least two classes.
    """
    if how not in ("mean", "vote"):
        raise InvalidArgumentError.of_field("aggregate", how, "mean or vote")
    shapes = {array.shape for array in answers.values()}
    if len(shapes) != 1 or len(shape := next(iter(shapes))) != 2 or shape[1] < 2:
        raise InvalidArgumentError.of_field(
            "outputs", sorted(shapes), "one shape [n, classes] for all nodes, to be combined"
        )
    probabilities = {name: softmax(array) for name, array in answers.items()}
    stacked = np.stack(list(probabilities.values()))
    mean, median = stacked.mean(axis=0), np.median(stacked, axis=0)
    distances = {name: total_variation(each, median) for name, each in probabilities.items()}
    deviating = [name for name, distance in distances.items() if distance > DEVIATION_LIMIT]
    disagreement = float(np.max([np.abs(each - mean).max(axis=1) for each in stacked], axis=0).mean())
    outputs = mean if how == "mean" else _vote(stacked)
    return Combined(outputs, disagreement, tuple(deviating) if len(answers) > 2 else ())


def softmax(logits: _Array) -> _Array:
    """Probabilities of rows of logits; rows that are probabilities already stay as they are."""
    rows = logits.astype(np.float64)
    if (rows >= 0).all() and np.allclose(rows.sum(axis=1), 1, atol=1e-4):
        return rows
    exponentials = np.exp(rows - rows.max(axis=1, keepdims=True))
    shares: _Array = exponentials / exponentials.sum(axis=1, keepdims=True)
    return shares


def total_variation(one: _Array, other: _Array) -> float:
    """Half the sum of the absolute differences of a row, averaged over the rows: 0 to 1."""
    return float(np.abs(one - other).sum(axis=1).mean() / 2)


def _vote(stacked: _Array) -> _Array:
    votes, classes = stacked.argmax(axis=2), stacked.shape[2]
    counts = (votes[:, :, None] == np.arange(classes)).sum(axis=0)
    # Equal numbers of votes go to the class that the nodes together find more probable.
    winners: _Array = (counts + stacked.mean(axis=0) / 2).argmax(axis=1)
    return winners
