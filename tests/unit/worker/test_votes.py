"""What counts as a vote, by hand: the scale of owners with unequal samples, and what is refused."""

import torch

from peerloom.worker.sync.robust.aggregation import MEAN, of_part
from peerloom.worker.sync.robust.votes import collect, voters

# A batch of 10 samples: rank 0 has 5, rank 1 has 3, rank 2 has 2, and rank 3, a newcomer, none.
COUNTS = [5, 3, 2, 0]


def test_a_vote_is_the_mean_gradient_of_an_owners_samples() -> None:
    """A rank sends the sum over its samples by the whole batch: a mean of 8 over 5 samples comes as 4."""
    gradients = torch.tensor([[4.0, 1.0], [3.0, 0.6], [-1.0, 0.2], [0.0, 0.0]])
    votes = collect(gradients, ["ada", "bob", "cy", "dan"], COUNTS)
    assert votes.owners == ("ada", "bob", "cy")
    assert votes.samples == (5, 3, 2)
    torch.testing.assert_close(votes.values, torch.tensor([[8.0, 2.0], [10.0, 2.0], [-5.0, 1.0]]))
    assert votes.refused == ()


def test_the_ranks_of_one_owner_have_one_vote() -> None:
    """Ranks 0 and 2 belong to ada: (4 - 1) over 7 of 10 samples."""
    gradients = torch.tensor([[4.0], [3.0], [-1.0], [0.0]])
    votes = collect(gradients, ["ada", "bob", "ada", "bob"], COUNTS)
    assert (votes.owners, votes.samples) == (("ada", "bob"), (7, 3))
    torch.testing.assert_close(votes.values, torch.tensor([[30 / 7], [10.0]]))


def test_the_weighted_mean_of_all_votes_is_the_sum_of_the_gradients() -> None:
    gradients = torch.tensor([[4.0, 1.0], [3.0, 0.6], [-1.0, 0.2], [0.0, 0.0]])
    votes = collect(gradients, ["ada", "bob", "ada", "dan"], COUNTS)
    torch.testing.assert_close(of_part(MEAN, votes), gradients.sum(0))


def test_values_that_are_not_finite_cost_their_rank_its_say_and_nobody_else() -> None:
    """Of ada's ranks one sends an infinity: her vote is that of the other, over its own samples."""
    gradients = torch.tensor([[torch.inf, 0.0], [3.0, 0.6], [-1.0, 0.2], [torch.nan, 0.0]])
    votes = collect(gradients, ["ada", "bob", "ada", "dan"], COUNTS)
    assert votes.refused == (0,)
    assert (votes.owners, votes.samples) == (("bob", "ada"), (3, 2))
    torch.testing.assert_close(votes.values, torch.tensor([[10.0, 2.0], [-5.0, 1.0]]))
    # The mean is that of the samples that are left: (3 - 1) * 10 / 5.
    torch.testing.assert_close(of_part(MEAN, votes), torch.tensor([4.0, 1.6]))


def test_numbers_too_large_to_be_added_up_are_refused() -> None:
    votes = collect(torch.tensor([[3e38, 3e38], [1.0, 1.0]]), ["ada", "bob"], [1, 1])
    assert (votes.owners, votes.refused) == (("bob",), (0,))


def test_whoever_has_no_samples_is_not_heard() -> None:
    votes = collect(torch.tensor([[1e9], [1.0]]), ["ada", "bob"], [0, 2])
    assert votes.owners == ("bob",)
    assert voters(["ada", "bob", "ada", "bob"], COUNTS) == ["ada", "bob"]


def test_short_numbers_are_added_up_as_longer_ones() -> None:
    """60,000 is finite in float16, and twice that isn't."""
    gradients = torch.tensor([[6e4], [6e4]], dtype=torch.float16)
    votes = collect(gradients, ["ada", "ada"], [1, 1])
    assert votes.values.dtype == torch.float32
    assert votes.values.tolist() == [[120_000.0]]
