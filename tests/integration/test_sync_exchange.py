"""Three real processes train by each method: the same parameters on all, and nothing lost but what is known.

They are started once and go through all methods, one after the other; the tests look at what they said.
"""

from pathlib import Path
from typing import Any

import pytest
from member_processes import printed_by_ranks

DEADLINE_S = 200
SCRIPT = Path(__file__).parent / "sync_member.py"
RANKS = 3
PLAIN = ""
EXACT = [
    *("schedule=bsp", "topology=direct", "schedule=bsp,topology=direct", "schedule=merged:16384"),
    *("wfbp-ps", "schedule=bsp,topology=ps:2", "topology=ps:9", "schedule=merged:16384,topology=ps"),
    *("schedule=cut:16384", "schedule=cut:16384,topology=ps", "topology=doubling"),
    *("schedule=bsp,topology=doubling", "schedule=cut:16384,topology=doubling"),
    *("topology=hierarchy", "schedule=cut:16384,topology=hierarchy:a/c+b"),
    *("topology=ps:b", "schedule=bsp,topology=ps:b+z", "schedule=cut:16384,topology=ps:a", "topology=ps:z"),
]
HALVES = [
    *("codec=fp16", "codec=bf16", "codec=fp16,topology=direct", "schedule=bsp,codec=bf16,topology=direct"),
    "topology=doubling,codec=fp16",
    "topology=doubling,codec=bf16,codec_from=16384",
    "topology=ps:b,codec=fp16",
]
LOSSY = [
    *("codec=int8", "schedule=bsp,codec=int8", "codec=int4", "codec=mxfp4", "codec=1bit", "codec=topk:0.05"),
    *("topology=ps,codec=int8", "schedule=cut:16384,topology=ps,codec=int4"),
    *("topology=hierarchy,codec=int8", "schedule=cut:16384,topology=hierarchy,codec=topk:0.05"),
    *("codec=powersgd:2", "topology=direct,codec=powersgd:4", "schedule=bsp,topology=ps,codec=powersgd:1"),
    *("schedule=merged:16384,codec=powersgd:2", "schedule=cut:16384,codec=powersgd:2"),
    *("topology=doubling,codec=powersgd:2", "topology=hierarchy,codec=powersgd:2"),
    *("codec=int4,codec_from=16384", "schedule=bsp,topology=ps,codec=int8,codec_from=16384"),
    "topology=hierarchy,codec=int4,codec_from=16384",
    *("topology=ps:b,codec=int8", "schedule=cut:16384,topology=ps:a,codec=topk:0.05"),
    *("topology=ps:b,codec=powersgd:2", "topology=ps:b,codec=int4,codec_from=16384"),
]
# From a codec with error feedback to methods that keep nothing back: the sums get what it had left out.
SETTLED = [
    *("codec=int4>wfbp-a2a", "codec=1bit>topology=ps", "codec=int8>schedule=bsp"),
    "codec=powersgd:2>topology=direct",
    "topology=ps:b,codec=int8>topology=ps:a",
]
CHANGED = [
    *SETTLED,
    *(
        "codec=int4>topology=ps,codec=1bit",
        "topology=ps:b,codec=int4>topology=ps:a,codec=int4",
        "wfbp-ps>schedule=cut:16384,codec=int4",
    ),
    *("codec=int4>codec=powersgd:2", "codec=powersgd:1>codec=int8,codec_from=1024"),
]
# Rank 1 leads no site: what it had left out goes into its leader's sum.
LED = "codec=int4>topology=hierarchy,codec=int4"
METHODS = [PLAIN, *EXACT, *HALVES, *LOSSY, *CHANGED, LED]
WRONG = "not finite"


@pytest.fixture(scope="module")
def said(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[dict[str, Any]]]:
    """What each rank said of each method."""
    told = {"ranks": RANKS, "methods": METHODS, "wrong": "codec=int4"}
    by_rank, _ = printed_by_ranks(SCRIPT, told, RANKS, tmp_path_factory.mktemp("hub"), DEADLINE_S)
    return {
        name: list(lines)
        for name, *lines in zip([*METHODS, WRONG], *by_rank, strict=True)  # type: ignore[misc]
    }


@pytest.mark.parametrize("method", METHODS)
def test_all_ranks_have_the_same_parameters_to_the_last_bit(said: Any, method: str) -> None:
    assert len({one["parameters"] for one in said[method]}) == 1
    assert all(one["losses"] == said[method][0]["losses"] for one in said[method])
    assert all(one["finite"] for one in said[method])


@pytest.mark.parametrize("method", [PLAIN, *EXACT])
def test_exact_methods_give_the_sum(said: Any, method: str) -> None:
    assert said[method][0]["first_off"] < 1e-6
    assert said[method][0]["losses"] == pytest.approx(said[PLAIN][0]["losses"], rel=1e-5)


@pytest.mark.parametrize("method", HALVES)
def test_halves_are_off_by_a_half_s_rounding(said: Any, method: str) -> None:
    """2^-11 of a value for fp16 and 2^-8 for bf16, in each of the three roundings of a value."""
    assert 1e-5 < said[method][0]["first_off"] < 3 * 2**-8


@pytest.mark.parametrize("method", LOSSY)
def test_what_lossy_methods_leave_out_is_in_the_residuals(said: Any, method: str) -> None:
    assert said[method][0]["first_off"] > 1e-3, "a codec that loses nothing shows nothing"
    assert said[method][0]["missing"] < 1e-5


@pytest.mark.parametrize("method", [method for method in LOSSY if "powersgd" in method])
def test_powersgd_gives_what_torch_s_own_hook_gives(said: Any, method: str) -> None:
    """In each of the steps, with its error feedback and its warm start, from the same first directions."""
    assert all(one["beside_torch"] < 2e-5 for one in said[method])


@pytest.mark.parametrize("method", CHANGED)
def test_a_change_of_method_loses_nothing_of_the_residuals(said: Any, method: str) -> None:
    assert all(one["missing"] < 1e-5 for one in said[method])
    assert all((one["left_out"] == 0) == (method in SETTLED) for one in said[method])


def test_who_leads_no_site_gives_its_residual_to_the_leader(said: Any) -> None:
    assert all(one["missing"] < 1e-5 for one in said[LED])
    assert [one["left_out"] > 0 for one in said[LED]] == [True, False, True]


def test_a_gradient_that_is_not_finite_comes_to_all(said: Any) -> None:
    assert [one["finite"] for one in said[WRONG]] == [False] * RANKS


def by_ring(summed_bytes: int) -> int:
    """Two of three parts, twice."""
    return 4 * summed_bytes // 3


# 64*128 + 128 + 128*64 + 64 = 16,576 values, 5,526 in each of three parts; in int8 a part has 22 blocks, with
# scales of 4 bytes. What leaves the rank counts: of a direct exchange two parts of three in both rounds, and
# the loss of 4 bytes for each other rank. Both matrices have sides of 64 and 128: the first factors' two
# columns are 384 values, which the 192 of the biases travel with, and so are those of the second. A third of
# the large parameters is 5,462 values, also 22 blocks, of 4 bits a value; of the small ones 64.
@pytest.mark.parametrize(
    ("method", "sent"),
    [
        (PLAIN, by_ring(16_576 * 4) + by_ring(4)),
        ("codec=fp16", by_ring(16_576 * 2) + by_ring(4)),
        ("topology=direct", 2 * 2 * 5526 * 4 + 2 * 4),
        ("codec=int8", 2 * 2 * (5526 + 22 * 4) + 2 * 4),
        ("codec=topk:0.05", 2 * 2 * 277 * 8 + 2 * 4),
        ("codec=powersgd:2", by_ring((192 + 384) * 4) + by_ring(384 * 4) + by_ring(4)),
        ("codec=int4,codec_from=16384", 2 * 2 * (2731 + 22 * 4 + 64 * 4) + 2 * 4),
    ],
)
def test_what_leaves_a_rank_is_counted(said: Any, method: str, sent: int) -> None:
    assert [one["counted"] for one in said[method]] == [sent] * RANKS


@pytest.mark.parametrize("method", [PLAIN, "codec=int8"])
def test_the_kernel_sees_what_is_counted(said: Any, method: str) -> None:
    """As it tells what sockets sent, with the headers of messages: some hundred bytes, by gloo's ring too."""
    for one in said[method]:
        assert 0 <= one["sent"] - one["counted"] < 4000
