"""Six real processes make steps by a rule: what comes out is what the rule says of their own gradients.

They are started once and make all steps, one after the other; the tests look at what they said.
"""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from member_processes import printed_by_ranks

from peerloom.kit.robust_rules import CENTRED_CLIPPING, KRUM, MEDIAN, TRIMMED_MEAN
from peerloom.worker.sync.robust import vote_rules

DEADLINE_S = 200
SCRIPT = Path(__file__).parent / "robust_member.py"
COUNTS = [5, 3, 4, 2, 6, 4]
OWN = ["a", "b", "c", "d", "e", "f"]
FOUR = ["a", "b", "c", "d", "a", "b"]
FIVE = ["a", "b", "c", "d", "e", "a"]


def step(rule: str, owners: list[str], lies: dict[str, str] | None = None, **more: Any) -> dict[str, Any]:
    return {"rule": rule, "owners": owners, "counts": COUNTS, "lies": lies or {}, **more}


STEPS = {
    TRIMMED_MEAN: step(TRIMMED_MEAN, OWN, {"1": "flip"}),
    MEDIAN: step(MEDIAN, OWN, {"1": "huge"}),
    KRUM: step(KRUM, OWN, {"1": "huge"}),
    CENTRED_CLIPPING: step(CENTRED_CLIPPING, OWN, {"1": "huge"}),
    "five owners": step(TRIMMED_MEAN, FIVE),
    "auto": step("auto", OWN, {"1": "huge"}),
    "auto with a coin": step("auto", OWN, {"1": "huge"}, coin=True),
    "auto of four owners": step("auto", FOUR),
    "not finite": step(KRUM, OWN, {"2": "nan"}),
    "not finite, four owners": step("auto", FOUR, {"2": "nan"}),
    "large": step("auto", OWN, width=20_000),
    "nobody is finite": step("auto", OWN, dict.fromkeys("012345", "nan")),
}


class Said:
    """What the ranks said of each step, and what they logged."""

    def __init__(self, by_rank: list[list[Any]], logs: list[str]) -> None:
        self._by_rank = by_rank
        self.logs = logs

    def of(self, name: str) -> list[dict[str, Any]]:
        place = list(STEPS).index(name)
        return [lines[place] for lines in self._by_rank]

    def votes(self, name: str, owners: list[str]) -> torch.Tensor:
        """Each owner's mean gradient over its samples: the sums of the ranks by its part of the batch."""
        own = torch.tensor([said["own"] for said in self.of(name)])
        rows = []
        for owner in dict.fromkeys(owners):
            ranks = [rank for rank, who in enumerate(owners) if who == owner]
            rows.append(own[ranks].sum(0) * sum(COUNTS) / sum(COUNTS[rank] for rank in ranks))
        return torch.stack(rows)

    def came(self, name: str) -> torch.Tensor:
        """The gradient that came out: the same to the last bit on all ranks."""
        came = [said["came"] for said in self.of(name)]
        assert all(one == came[0] for one in came)
        return torch.tensor(came[0])


@pytest.fixture(scope="module")
def said(tmp_path_factory: pytest.TempPathFactory) -> Said:
    told = {"steps": list(STEPS.values())}
    return Said(*printed_by_ranks(SCRIPT, told, len(COUNTS), tmp_path_factory.mktemp("hub"), DEADLINE_S))


def test_a_trimmed_mean_of_the_owners_votes_comes_out(said: Said) -> None:
    expected = vote_rules.trimmed_mean(said.votes(TRIMMED_MEAN, OWN), 1)
    torch.testing.assert_close(said.came(TRIMMED_MEAN), expected, rtol=1e-5, atol=1e-6)


def test_a_median_of_the_owners_votes_comes_out(said: Said) -> None:
    expected = said.votes(MEDIAN, OWN).sort(0).values[2:4].mean(0)
    torch.testing.assert_close(said.came(MEDIAN), expected, rtol=1e-5, atol=1e-6)


def test_krum_takes_one_honest_vote_whole(said: Said) -> None:
    """Six parts, one choice: by the distances of whole votes, which no worker has."""
    apart = (said.votes(KRUM, OWN) - said.came(KRUM)).norm(dim=1)
    honest = [rank for rank in range(6) if rank != 1]
    assert min(float(apart[rank]) for rank in honest) < 1e-5


def test_clipping_stays_among_the_honest(said: Said) -> None:
    honest = said.votes(CENTRED_CLIPPING, OWN)[[0, 2, 3, 4, 5]]
    centre = honest.mean(0)
    radius = (honest - centre).norm(dim=1).max()
    assert float((said.came(CENTRED_CLIPPING) - centre).norm()) < 2 * float(radius)


def test_the_workers_of_one_owner_have_one_vote(said: Said) -> None:
    votes = said.votes("five owners", FIVE)
    assert len(votes) == 5
    expected = votes.sort(0).values[1:4].mean(0)
    torch.testing.assert_close(said.came("five owners"), expected, rtol=1e-5, atol=1e-6)


def test_auto_leaves_out_who_stands_apart_and_stays_among_the_honest(said: Said) -> None:
    honest = said.votes("auto", OWN)[[0, 2, 3, 4, 5]]
    came, slack = said.came("auto"), 1e-5
    assert bool((came >= honest.min(0).values - slack).all())
    assert bool((came <= honest.max(0).values + slack).all())


def test_all_throw_the_same_coin_and_the_gradient_is_what_it_is_without(said: Said) -> None:
    first, *others = [one["thrown"] for one in said.of("auto with a coin")]
    assert len(bytes.fromhex(first)) == 32
    assert others == [first] * 5
    assert torch.equal(said.came("auto with a coin"), said.came("auto"))
    assert {one["thrown"] for one in said.of("auto")} == {None}


def test_with_four_owners_the_sum_of_all_gradients_comes_out(said: Said) -> None:
    name = "auto of four owners"
    expected = torch.tensor([one["own"] for one in said.of(name)]).sum(0)
    torch.testing.assert_close(said.came(name), expected, rtol=1e-5, atol=1e-6)
    losses = {one["loss"] for one in said.of(name)}
    assert len(losses) == 1


@pytest.mark.parametrize("name", ["not finite", "not finite, four owners"])
def test_a_gradient_that_is_not_finite_is_left_out_and_its_rank_is_named(said: Said, name: str) -> None:
    assert bool(said.came(name).isfinite().all())
    assert all(one["loss"] > 0 for one in said.of(name))
    for log in said.logs:
        first = json.loads(log.splitlines()[0])
        assert (first["event"], first["ranks"], first["owners"]) == ("gradients_refused", [2], ["c"])


def test_without_one_finite_gradient_the_job_is_told_what_to_do(said: Said) -> None:
    assert all("smaller learning rate" in one["refused"] for one in said.of("nobody is finite"))


def test_the_bytes_are_those_of_a_ring_all_reduce(said: Said) -> None:
    """2 (n - 1) / n of the gradient a rank, as the kernel counts what the sockets sent; 5 % for the rest."""
    for one in said.of("large"):
        ring = 2 * 5 / 6 * one["gradient_bytes"]
        assert ring <= one["sent"] <= 1.05 * ring
