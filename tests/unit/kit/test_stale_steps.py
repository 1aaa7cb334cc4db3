"""What `staleness`, `late` and `backup` may say, what is refused, and into how many parts a batch is cut."""

import pytest

from peerloom.errors import InvalidArgumentError
from peerloom.kit.sample_ranges import cut_out, joined, others, size, why_not_apart
from peerloom.kit.stale_steps import StaleSteps
from peerloom.kit.sync_explained import explained
from peerloom.kit.sync_grammar import parse_sync

BEGIN = "schedule=bsp,topology=ring,codec=none"


@pytest.mark.parametrize(
    ("text", "whole"),
    [
        ("ssp:2", f"{BEGIN},staleness=2,late=merge"),
        ("asp", f"{BEGIN},staleness=any,late=merge"),
        ("asp,late=weighted", f"{BEGIN},staleness=any,late=weighted"),
        ("backup=.9", f"{BEGIN},staleness=0,late=merge,backup=0.9"),
        (
            "ssp:0,backup=0.5,codec=int8",
            "schedule=bsp,topology=direct,codec=int8,staleness=0,late=merge,backup=0.5",
        ),
    ],
)
def test_what_is_left_out_is_filled_in(text: str, whole: str) -> None:
    assert str(parse_sync("sync", text)) == whole
    assert str(parse_sync("sync", whole)) == whole


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("ssp", "ssp:S, as in ssp:2"),
        ("ssp:-1", "is 'ssp:-1', but must be a staleness of 0 to 1,000"),
        ("staleness=-1", "a staleness of 0 to 1,000"),
        ("staleness=1001", "a staleness of 0 to 1,000"),
        ("staleness=1.5", "a whole number, or any"),
        ("late=weighted", "a staleness too"),
        ("ssp:1,late=never", "of a late that is there"),
        ("backup=0", "a backup above 0"),
        ("backup=nan", "a backup above 0"),
        ("backup=1.1", "at most 1"),
        ("asp,backup=0.9", "with any nobody is waited for anyway"),
        ("ssp:1,staleness=2", "without a second staleness"),
        ("ssp:1,period=4", "one of them counts; the nearest is .*staleness=1"),
        ("ssp:1,schedule=wfbp", "too late for wfbp; the nearest is schedule=bsp"),
        ("federated,staleness=1", "KEY=VALUE pairs of algorithm"),
    ],
)
def test_what_cannot_be_is_refused_with_its_limit(text: str, message: str) -> None:
    with pytest.raises(InvalidArgumentError, match=message):
        parse_sync("sync", text)


def test_older_gradients_cannot_be_robust() -> None:
    with pytest.raises(InvalidArgumentError, match="nobody keeps the older parameters"):
        parse_sync("sync", "asp", "krum")


@pytest.mark.parametrize(
    ("stale", "batch", "workers", "parts"),
    [
        (StaleSteps(2), 32, 3, 4),
        (StaleSteps(2), 32, 4, 4),
        (StaleSteps(2), 30, 4, 5),
        (StaleSteps(2), 62, 4, 2),  # its divisors are 1, 2, 31, 62
        (StaleSteps(None), 2, 5, 2),
        (StaleSteps(0, backup=0.9), 90, 10, 9),
        (StaleSteps(0, backup=0.75), 32, 4, 2),  # 3 are needed
        (StaleSteps(0, backup=0.1), 32, 4, 1),
    ],
)
def test_a_batch_is_cut_into_equal_parts(stale: StaleSteps, batch: int, workers: int, parts: int) -> None:
    assert stale.parts(batch, workers) == parts


def test_a_method_says_how_old_gradients_may_be() -> None:
    assert explained(parse_sync("sync", "ssp:2")).late_gradients == (
        "no gradient counts whose parameters are more than 2 steps old; who would be beyond that is waited "
        "for; each sample counts once an epoch"
    )
    assert "nobody is waited for" in explained(parse_sync("sync", "asp")).late_gradients
    assert "a part beyond the bound is refused" in explained(parse_sync("sync", "backup=0.5")).late_gradients
    assert explained(parse_sync("sync", "")).late_gradients == ""
    assert not parse_sync("sync", "ssp:2").is_exact


def test_ranges_are_joined_completed_and_cut() -> None:
    assert joined([(8, 12), (0, 4), (4, 6)]) == ((0, 6), (8, 12))
    assert others([(8, 12), (0, 4)], 14) == ((4, 8), (12, 14))
    assert others([(0, 14)], 14) == ()
    assert size([(8, 12), (0, 4)]) == 8
    assert cut_out([(4, 8), (12, 20)], 2, 6) == ((6, 8), (12, 14))
    assert cut_out([(4, 8), (12, 20)], 8, 16) == ((16, 20),)


def test_ranges_that_overlap_or_leave_the_epoch_are_told() -> None:
    assert why_not_apart([(0, 4), (4, 8)], 8) == ""
    assert why_not_apart([(0, 5), (4, 8)], 8) == "position 4 stands in two of its parts"
    assert why_not_apart([(0, 9)], 8) == "from 0 to 9 is no part of an epoch of 8 samples"
    assert why_not_apart([(3, 3)], 8).startswith("from 3 to 3")
