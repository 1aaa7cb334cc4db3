"""Rules that make one gradient of many votes, some of which may lie: pure functions.

Votes are [m, d]: m votes on d coordinates, all finite. Trimmed mean and median look at each coordinate by
itself (Yin et al., ICML 2018), so a part of the gradient is enough. Krum (Blanchard et al., NeurIPS 2017)
and centred clipping (Karimireddy, He, Jaggi, ICML 2021) need the distances between whole votes: each part
gives its Gram matrix, and from their sum come coefficients that fit every part.

Clipping is used without the paper's worker momentum: that would be a state of each worker, lost with it and
unknown to newcomers, beside the momentum of the task's own optimiser. It begins at the coordinate-wise
median of the step's votes instead of the last step's result, with the median of the distances to it for a
radius.
"""

from collections.abc import Iterator, Sequence

import torch

CLIPPING_ROUNDS = 3  # the first does most; the paper uses one with a good centre
# Times the usual squared distance of a history from its neighbours. An honest owner with a quarter of the
# others' samples comes to about 2.
APART = 2.0


def tolerated(votes: int) -> int:
    """How many liars among so many votes a rule is set for: less than a third of them."""
    return max(0, (votes - 1) // 3)


def trimmed_mean(votes: torch.Tensor, liars: int) -> torch.Tensor:
    """The mean of each coordinate without its `liars` largest and smallest values; [d]. Needs m > 2 liars."""
    assert len(votes) > 2 * liars, "more votes than can be cut away"
    kept = sorted_rows(votes)[liars : len(votes) - liars]
    return torch.stack(kept).mean(0)


def median(votes: torch.Tensor) -> torch.Tensor:
    """The median of each coordinate; of an even number, the mean of the two in the middle; [d]."""
    rows, middle = sorted_rows(votes), len(votes) // 2
    return rows[middle] if len(votes) % 2 else (rows[middle - 1] + rows[middle]) / 2


def sorted_rows(votes: torch.Tensor) -> list[torch.Tensor]:
    """The votes with each coordinate sorted by itself, the smallest first.

    A sorting network over whole rows: about ten times as fast as `torch.sort` along the short side.
    """
    rows = list(votes.unbind(0))
    for i, j in comparators(len(rows)):
        rows[i], rows[j] = torch.minimum(rows[i], rows[j]), torch.maximum(rows[i], rows[j])
    return rows


def comparators(count: int) -> Iterator[tuple[int, int]]:
    """Which places to compare, in order, to sort `count` values (Batcher's merge exchange).

    Source: Knuth, The Art of Computer Programming, volume 3, 5.2.2, algorithm M.
    """
    top = 1 << max(0, (count - 1).bit_length() - 1)
    step = top if count > 1 else 0
    while step:
        block, remainder, distance = top, 0, step
        while True:
            for i in range(count - distance):
                if i & step == remainder:
                    yield i, i + distance
            if block == step:
                break
            distance, block, remainder = block - step, block // 2, step
        step //= 2


def gram(votes: torch.Tensor, centre: torch.Tensor) -> torch.Tensor:
    """The products of all pairs of votes seen from `centre`, float64 [m, m]; those of parts add up."""
    seen = votes.double() - centre.double()
    return seen @ seen.t()


def krum(products: torch.Tensor, liars: int) -> torch.Tensor:
    """Coefficients, float64 [m], that take the one vote nearest to its m - liars - 2 nearest neighbours."""
    norms, count = products.diagonal(), len(products)
    distances = norms[:, None] + norms[None, :] - 2 * products
    distances.fill_diagonal_(torch.inf)
    nearest = distances.sort(1).values[:, : max(1, count - liars - 2)]
    chosen = torch.zeros(count, dtype=torch.float64)
    chosen[nearest.sum(1).argmin()] = 1.0
    return chosen


def centred_clipping(products: torch.Tensor) -> torch.Tensor:
    """Coefficients, float64 [m], of the votes seen from their median: each pulls the centre, none by far.

    A round moves the centre c to c + mean((v - c) min(1, radius / |v - c|)).
    """
    count = len(products)
    weights = torch.zeros(count, dtype=torch.float64)
    radius = products.diagonal().clamp(min=0).sqrt().median()
    for _ in range(CLIPPING_ROUNDS):
        squares = products.diagonal() - 2 * products @ weights + weights @ products @ weights
        distances = squares.clamp(min=0).sqrt()
        pull = torch.where(distances > radius, radius / distances, 1.0)
        weights = weights * (1 - pull.mean()) + pull / count
    return weights


def apart(squares: torch.Tensor, liars: int) -> list[int]:
    """Which of m votes stand apart from most, `liars` at most, by their squared distances [m, m].

    A vote's distance is the mean of those to its m - liars - 1 nearest others. The usual one is the median
    of the m - liars smallest; who is more than `APART` times as far stands apart, the farthest first.
    """
    count = len(squares)
    away = squares.nan_to_num(nan=torch.inf).fill_diagonal_(torch.inf)
    scores, order = away.sort(1).values[:, : count - liars - 1].mean(1).sort(stable=True)
    usual = scores[: count - liars].median()
    return [int(order[place]) for place in range(count - liars, count) if scores[place] > APART * usual]


def combined(votes: torch.Tensor, centre: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
    """The gradient of such coefficients: centre + sum(weight (vote - centre)); [d], as the votes are."""
    moved = weights @ (votes.double() - centre.double())
    return (centre.double() + moved).to(votes.dtype)


def weighted_mean(votes: torch.Tensor, samples: Sequence[int]) -> torch.Tensor:
    """The mean over all samples: what an all-reduce gives; [d]."""
    weights = torch.tensor(samples, dtype=votes.dtype, device=votes.device)
    return weights @ votes / sum(samples)
