"""What `sync` may say, what is refused and why, and what a method costs in bytes."""

import re
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from peerloom.errors import InvalidArgumentError
from peerloom.kit.codec_sizes import (
    encoded_bytes,
    is_worth_encoding,
    is_worth_factoring,
    square_side,
)
from peerloom.kit.sync_explained import explained
from peerloom.kit.sync_grammar import parse_sync
from peerloom.kit.sync_method import PRESETS, SyncMethod, why_not_nccl


def parsed(text: str, robust: str = "off", backend: str = "auto") -> str:
    return str(parse_sync("sync", text, robust, backend))


ROUNDS = "schedule=bsp,topology=ring,codec=none"
DIRECT_ROUNDS = ROUNDS.replace("ring", "direct")


@pytest.mark.parametrize(
    ("text", "whole"),
    [
        ("", "schedule=wfbp,topology=ring,codec=none"),
        ("wfbp-a2a", "schedule=wfbp,topology=ring,codec=none"),
        ("bsp-a2a", "schedule=bsp,topology=ring,codec=none"),
        ("topology=direct", "schedule=wfbp,topology=direct,codec=none"),
        ("codec=fp16", "schedule=wfbp,topology=ring,codec=fp16"),
        ("codec=bf16,topology=direct", "schedule=wfbp,topology=direct,codec=bf16"),
        ("codec=int4", "schedule=wfbp,topology=direct,codec=int4"),
        ("codec=topk:1e-2,schedule=bsp", "schedule=bsp,topology=direct,codec=topk:0.01"),
        ("local-sgd", f"{ROUNDS},period=16,outer=average"),
        ("diloco", f"{ROUNDS},period=32,outer=nesterov:1.0:0.6"),
        ("period=1", f"{ROUNDS},period=1,outer=average"),
        ("outer=nesterov:.7:9e-1,period=0500", f"{ROUNDS},period=500,outer=nesterov:0.7:0.9"),
        ("period=9,outer=nesterov:1:0", f"{ROUNDS},period=9,outer=average"),
        ("delay=1,period=4", f"{ROUNDS},period=4,outer=average,delay=1"),
        ("delay=0,period=4", f"{ROUNDS},period=4,outer=average"),
        ("groups=02:4,period=16", f"{DIRECT_ROUNDS},period=16,outer=average,groups=2:4"),
        ("partial=08:1,period=16", f"{DIRECT_ROUNDS},period=16,outer=average,partial=8:1"),
        ("partial=8:2:01,period=16", f"{DIRECT_ROUNDS},period=16,outer=average,partial=8:2:1"),
        (
            "period=64,partial=6:1,codec=2bit",
            "schedule=bsp,topology=direct,codec=2bit,period=64,outer=average,partial=6:1",
        ),
        ("period=9,groups=sites:8,delay=1", f"{DIRECT_ROUNDS},period=9,outer=average,delay=1,groups=sites:8"),
        (
            "period=9,groups=64:1,topology=hierarchy:a+b/c",
            "schedule=bsp,topology=hierarchy:a+b/c,codec=none,period=9,outer=average,groups=64:1",
        ),
        (
            "partial-averaging",
            "schedule=bsp,topology=direct,codec=2bit,period=1000,outer=average,partial=7:1",
        ),
        ("cocod-sgd", f"{ROUNDS},period=16,outer=average,delay=1"),
        ("diloco-eager", f"{ROUNDS},period=32,outer=nesterov:1.0:0.6,delay=1"),
        ("period=4,codec=int4", "schedule=bsp,topology=direct,codec=int4,period=4,outer=average"),
        ("bsp-ps", "schedule=bsp,topology=ps,codec=none"),
        ("wfbp-ps", "schedule=wfbp,topology=ps,codec=none"),
        ("mg-wfbp", "schedule=merged:1048576,topology=ring,codec=none"),
        ("bytescheduler-ps", "schedule=cut:524288,topology=ps,codec=none"),
        ("bytescheduler-a2a", "schedule=cut:524288,topology=direct,codec=none"),
        ("topology=ps:2,codec=int8", "schedule=wfbp,topology=ps:2,codec=int8"),
        ("topology=ps:node-1+b,codec=int8", "schedule=wfbp,topology=ps:node-1+b,codec=int8"),
        ("topology=ps:7+8", "schedule=wfbp,topology=ps:7+8,codec=none"),
        ("period=4,topology=ps:a", f"{ROUNDS.replace('ring', 'ps:a')},period=4,outer=average"),
        ("topology=doubling,codec=bf16", "schedule=wfbp,topology=doubling,codec=bf16"),
        (
            "codec=int4,topology=hierarchy:node-1+b/3",
            "schedule=wfbp,topology=hierarchy:node-1+b/3,codec=int4",
        ),
        ("period=2,topology=hierarchy", f"{ROUNDS.replace('ring', 'hierarchy')},period=2,outer=average"),
        ("schedule=cut:1024,topology=doubling", "schedule=cut:1024,topology=doubling,codec=none"),
        ("schedule=cut:1024", "schedule=cut:1024,topology=direct,codec=none"),
        ("schedule=merged:65536,codec=int4", "schedule=merged:65536,topology=direct,codec=int4"),
        ("codec=powersgd:4", "schedule=wfbp,topology=ring,codec=powersgd:4"),
        ("codec=powersgd:8,topology=ps:2", "schedule=wfbp,topology=ps:2,codec=powersgd:8"),
        ("codec_from=65536,codec=int4", "schedule=wfbp,topology=direct,codec=int4,codec_from=65536"),
        ("codec=fp16,codec_from=01", "schedule=wfbp,topology=ring,codec=fp16,codec_from=1"),
        ("period=4,codec=powersgd:1", "schedule=bsp,topology=ring,codec=powersgd:1,period=4,outer=average"),
    ],
)
def test_what_is_left_out_is_filled_in_so_that_it_fits(text: str, whole: str) -> None:
    assert parsed(text) == whole
    assert parsed(whole) == whole


def test_a_rule_over_votes_has_an_exchange_of_its_own() -> None:
    assert parsed("", robust="krum") == "schedule=wfbp,topology=direct,codec=none"


DIRECT = "the nearest is schedule=wfbp,topology=direct,codec="


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("bsp-a2b", "did you mean bsp-a2a"),
        ("int8", "did you mean codec=int8"),
        ("topk:0.1", "did you mean codec=topk:0.1"),
        ("schedul=bsp", "did you mean schedule"),
        ("schedule=bps", "did you mean bsp"),
        ("topology=star", "ring, direct"),
        ("ps", "did you mean topology=ps"),
        ("topology=ps:0", "ps:K with a whole number from 1 to 65536"),
        ("topology=ps:-1", "ps:K with a whole number"),
        ("topology=ps:", "ps:K, ps:NODES"),
        ("topology=ps:a+a", "ps:NODES with each node's name once, as in ps:node-1+node-3"),
        ("topology=ps:a+", "ps:NODES with each node's name once"),
        ("topology=ps:a/b", "ps:NODES with each node's name once"),
        ("topology=ps:A", "ps:NODES with each node's name once"),
        ("topology=ps:" + "+".join(f"n{number}" for number in range(49)), "and 48 at most"),
        ("topology=ring:2", "did you mean ring"),
        ("schedule=cut", "cut:BYTES with a whole number from 1024"),
        ("schedule=merged:1023", "merged:BYTES with a whole number from 1024"),
        ("schedule=cut:1e6", "cut:BYTES"),
        ("schedule=bsp:4", "did you mean bsp"),
        ("schedule=cut:4096,topology=ring", "the nearest is schedule=cut:4096,topology=direct,codec=none"),
        ("codec=in8", "did you mean int8"),
        ("codec=int8:3", "int8"),
        ("codec=topk", "above 0 and at most 0.5"),
        ("codec=topk:0", "above 0 and at most 0.5"),
        ("codec=topk:2", "above 0 and at most 0.5"),
        ("codec=topk:nan", "above 0 and at most 0.5"),
        ("codec=topk:many", "above 0 and at most 0.5"),
        ("powersgd:4", "did you mean codec=powersgd:4"),
        ("codec=powersgd", "powersgd:RANK with a whole number from 1 to 8"),
        ("codec=powersgd:0", "powersgd:RANK with a whole number from 1 to 8"),
        ("codec=powersgd:9", "powersgd:RANK with a whole number from 1 to 8"),
        ("codec=powersgd:-1", "powersgd:RANK with a whole number from 1 to 8"),
        ("codec=powersgd:1.5", "powersgd:RANK with a whole number from 1 to 8"),
        ("codec=int8,codec_from=0", "codec_from=BYTES with a whole number from 1 to 1073741824"),
        ("codec=int8,codec_from=", "codec_from=BYTES with a whole number"),
        ("codec=int8,codec_from=64KiB", "codec_from=BYTES with a whole number"),
        ("codec=int8,codec_form=9999", "did you mean codec_from"),
        ("codec_from=9999", "a codec too, as in codec=int8"),
        ("codec=none,codec=none", "without a second codec"),
        ("codec=none,", "KEY=VALUE pairs"),
        ("codec=none," + "x" * 1100, "at most 1024 characters"),
        ("topology=ring,codec=int4", f"{DIRECT}int4"),
        ("topology=ring,codec=topk:0.1", f"{DIRECT}topk:0.1"),
        ("topology=doubling,codec=int4", f"no rank's to keep; {DIRECT}int4"),
        ("topology=doubling:2", "did you mean doubling"),
        ("topology=hierarchy:", "hierarchy:SITES"),
        ("topology=hierarchy:" + "/".join(f"n{number}" for number in range(49)), "and 48 at most"),
        ("topology=hierarchy:a+/b", "hierarchy:SITES with each node's name once"),
        ("topology=hierarchy:a+b/a", "hierarchy:SITES with each node's name once"),
        ("topology=hierarchy:A/b", "hierarchy:SITES with each node's name once"),
        ("period=0", "1 to 10,000 batches"),
        ("period=-1", "1 to 10,000 batches"),
        ("period=10001", "1 to 10,000 batches"),
        ("period=1.5", "a whole number"),
        ("period=", "a whole number"),
        ("outer=average", "a period too"),
        ("nesterov:0.7:0.9", "did you mean outer=nesterov:0.7:0.9"),
        ("delay=1", "a period too"),
        ("period=4,delay=2", "a delay of 0 or 1 rounds"),
        ("period=4,delay=-1", "a delay of 0 or 1 rounds"),
        ("period=4,delay=", "a delay of 0 or 1 rounds"),
        ("groups=2:4", "a period too"),
        ("period=4,groups=1:2", "2 to 64 ranks in a group, or sites:E, as in groups=4:8"),
        ("period=4,groups=65:2", "2 to 64 ranks in a group"),
        ("period=4,groups=site:2", "2 to 64 ranks in a group, or sites:E"),
        ("period=4,groups=sites", "sites:E, as in groups=4:8"),
        ("period=4,groups=2:4", "an E of at least 1 and below the period (4), as after that all exchange"),
        ("period=4,groups=2:0", "an E of at least 1"),
        ("period=4,groups=2:-1", "an E of at least 1"),
        ("period=4,groups=2:1.5", "an E of at least 1"),
        (
            "period=4,groups=2:2,topology=ring",
            "groups of them average by messages of their own; the nearest is schedule=bsp,topology=direct",
        ),
        ("staleness=2,groups=2:2", "a period too"),
        ("partial=4:1", "a period too"),
        ("period=4,partial=1:1", "2 to 1,000 parts, as in partial=8:1"),
        ("period=4,partial=1001:1", "2 to 1,000 parts"),
        ("period=4,partial=8", "partial=F:E with 2 to 1,000 parts"),
        ("period=4,partial=8:4", "an E of at least 1 and below the period (4), as after that all exchange"),
        ("period=4,partial=8:0", "an E of at least 1"),
        ("period=4,partial=8:1:2", "partial=8:1:L with an L of at most 1, as one part travels at a time"),
        ("period=4,partial=8:1:x", "with an L of at most 1"),
        ("period=4,partial=8:1:1:1", "partial=F:E with 2 to 1,000 parts"),
        ("period=4,partial=8:1,topology=ring", "nearest is schedule=bsp,topology=direct"),
        ("period=4,partial=8:1,groups=2:1", "two ways to average within a round"),
        ("period=4,partial=8:1,delay=1", "outer=average,partial=8:1"),
        ("period=4,partial=8:1,outer=nesterov:1.0:0.6", "outer=average,partial=8:1"),
        ("period=4,partial=8:1,codec=powersgd:2", "isn't by whole parameters; the nearest is"),
        ("period=4,partial=8:1,codec=int8,codec_from=9000", "isn't by whole parameters; the nearest is"),
        ("period=4,outer=nestrov:1:0.9", "did you mean nesterov"),
        ("period=4,outer=average:2", "average, nesterov:RATE:MOMENTUM"),
        ("period=4,outer=nesterov", "nesterov:0.7:0.9"),
        ("period=4,outer=nesterov:1", "nesterov:0.7:0.9"),
        ("period=4,outer=nesterov:0:0.9", "a RATE above 0"),
        ("period=4,outer=nesterov:nan:0.9", "a RATE above 0"),
        ("period=4,outer=nesterov:1:1", "a MOMENTUM from 0 and below 1"),
        ("period=4,schedule=wfbp", f"last batch.*{ROUNDS},period=4,outer=average"),
    ],
)
def test_what_cannot_be_is_refused_with_what_can(text: str, said: str) -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        parsed(text)
    assert said in caught.value.message or re.search(said, caught.value.message)
    assert caught.value.metadata["field"] == "sync"


@pytest.mark.parametrize(
    "text", ["codec=int8", "codec=fp16", "schedule=bsp", "bsp-a2a", "wfbp-a2a", "period=4", "diloco"]
)
def test_a_rule_over_votes_refuses_what_it_cannot_look_through(text: str) -> None:
    with pytest.raises(InvalidArgumentError, match=f"robust is auto.*{DIRECT}none"):
        parsed(text, robust="auto")


def test_nccl_takes_the_ring_and_no_direct_exchange() -> None:
    assert parsed("codec=bf16", backend="nccl") == "schedule=wfbp,topology=ring,codec=bf16"
    with pytest.raises(InvalidArgumentError, match=r"gloo.*nearest is schedule=bsp,topology=ring,codec=bf16"):
        parsed("schedule=bsp,codec=int8", backend="nccl")
    assert parsed("local-sgd", backend="nccl") == f"{ROUNDS},period=16,outer=average"
    with pytest.raises(InvalidArgumentError, match=r"nearest is .*ring,codec=none,period=8,outer=average\.$"):
        parsed("groups=2:4,period=8", backend="nccl")
    with pytest.raises(InvalidArgumentError, match=r"nearest is .*codec=bf16,period=4,outer=average"):
        parsed("codec=int8,period=4", backend="nccl")
    with pytest.raises(InvalidArgumentError, match="nearest is schedule=wfbp,topology=ring,codec=none"):
        parsed("topology=hierarchy:a+b/c", backend="nccl")
    with pytest.raises(InvalidArgumentError, match="nearest is schedule=wfbp,topology=ring,codec=none"):
        parsed("topology=ps:a+c", backend="nccl")
    with pytest.raises(InvalidArgumentError, match="nearest is schedule=merged:524288,topology=ring"):
        parsed("bytescheduler-ps", backend="nccl")
    assert parsed("codec=powersgd:2", backend="nccl") == "schedule=wfbp,topology=ring,codec=powersgd:2"
    with pytest.raises(
        InvalidArgumentError, match=r"nearest is .*topology=ring,codec=powersgd:2,codec_from=9"
    ):
        parsed("codec=powersgd:2,codec_from=9,topology=ps", backend="nccl")
    assert why_not_nccl(SyncMethod()) == ""
    assert "gloo" in why_not_nccl(SyncMethod(topology="direct"))
    assert why_not_nccl(SyncMethod(topology="direct"), robust="krum") == ""


# 1,000 values are 4 blocks of 256 or fewer: each has a scale of 4 bytes, and 8, 4 or 1 bits a value. Of mxfp4
# they are 32 blocks of 32, with 1 byte and 4 bits; of 2bit 8 blocks of 128, with 2 bytes and 2 bits.
@pytest.mark.parametrize(
    ("codec", "length"),
    [
        *[("none", 4000), ("fp16", 2000), ("bf16", 2000)],
        *[("int8", 1016), ("int4", 516), ("mxfp4", 532), ("2bit", 266), ("1bit", 141)],
    ],
)
def test_the_length_of_a_message_is_known_before(codec: str, length: int) -> None:
    assert encoded_bytes(SyncMethod(codec=codec), 1000) == length


def test_topk_sends_eight_bytes_for_each_value_that_it_keeps() -> None:
    """1 % of 950 values are 9.5, so 10; of three values it is one."""
    method = SyncMethod(codec="topk", ratio=0.01)
    assert (encoded_bytes(method, 950), encoded_bytes(method, 3)) == (80, 8)


def test_powersgd_sends_two_factors_of_a_square() -> None:
    """1,000 values fill a square with a side of 32: two factors of 32 by 3 values of 4 bytes."""
    method = SyncMethod(codec="powersgd", low_rank=3)
    assert encoded_bytes(method, 1000) == 2 * 32 * 3 * 4
    assert (square_side(1024), square_side(1025), square_side(1), square_side(0)) == (32, 33, 1, 0)


def test_factors_are_worth_it_where_they_save_a_packet_and_the_matrix_is_large_enough() -> None:
    """20 x 20 at rank 1: 400 values, and 40 in both factors, 1,440 bytes saved; 20 x 19 saves 1,364."""
    method = SyncMethod(codec="powersgd", low_rank=1)
    assert is_worth_factoring(method, 20, 20)
    assert not is_worth_factoring(method, 20, 19)
    assert is_worth_factoring(method, 20, 19, value_bytes=8)
    assert not is_worth_factoring(replace(method, codec_from=1601), 20, 20), "it has 1,600 bytes"
    assert is_worth_factoring(replace(method, codec_from=1600), 20, 20)
    assert not is_worth_factoring(replace(method, low_rank=8), 8, 10**6), (
        "no side may be as short as the rank"
    )


def test_a_message_that_saves_less_than_a_packet_travels_as_it_is() -> None:
    """int8 makes 260 bytes of a block of 1,024: one saves 764 bytes, two save 1,528."""
    method = SyncMethod(topology="direct", codec="int8")
    assert not is_worth_encoding(method, 256)
    assert is_worth_encoding(method, 512)
    assert not is_worth_encoding(method, 5), "a block would be longer than five values"
    assert not is_worth_encoding(SyncMethod(), 10**6)
    assert not is_worth_encoding(SyncMethod(codec="fp16"), 10**6, value_bytes=2), "it is no shorter"


def test_an_explanation_has_the_bytes_and_the_promises() -> None:
    found = explained(parse_sync("sync", "codec=int8"))
    assert (found.bytes_per_parameter, found.bytes_ratio) == (260 / 256, 260 / 1024)
    assert not found.is_exact
    assert "same bits on all ranks" in found.ranks
    assert [name for name, method in PRESETS.items() if not explained(method).is_exact] == [
        "local-sgd",
        "diloco",
        "cocod-sgd",
        "diloco-eager",
        "partial-averaging",
        "asp",
    ]


def test_a_low_rank_is_explained_with_its_sides_and_sizes() -> None:
    """A side of 1,024: both factors of rank 4 have 8,192 values for 2^20, 1/32 of a byte each."""
    found = explained(parse_sync("sync", "codec=powersgd:4,codec_from=4096"))
    assert (found.bytes_per_parameter, found.bytes_ratio) == (1 / 32, 1 / 128)
    assert found.codec.startswith("each matrix as a product of two")
    assert "fewer than 4096 bytes" in found.small_messages
    assert "residuals" in found.sums
    assert "round alike everywhere" in found.ranks


def test_rounds_are_explained_with_what_holds_and_when() -> None:
    """int4: 132 bytes for a block of 256 values, once in 32 batches."""
    found = explained(parse_sync("sync", "period=32,outer=nesterov:0.7:0.9,codec=int4"))
    assert (found.bytes_per_parameter, found.batches) == (132 / 256, 32)
    assert "a round is 32 steps" in found.period
    assert "rate 0.7, momentum 0.9" in found.outer
    assert "after each round" in found.ranks
    assert "mean" in explained(parse_sync("sync", "local-sgd")).outer


def test_of_a_delay_is_told_what_happens_meanwhile_and_when_a_round_counts() -> None:
    prompt, delayed = (explained(parse_sync("sync", f"period=4,delay={delay}")) for delay in (0, 1))
    assert delayed.schedule == f"{prompt.schedule}, while the next round is computed"
    assert delayed.period.startswith(prompt.period)
    assert delayed.period.endswith("hears of the others' part of it a round later, when the round counts")


def test_of_groups_is_told_who_averages_when_and_as_what() -> None:
    plain, groups, sites = (
        explained(parse_sync("sync", f"period=16,codec=int4{more}")).period
        for more in ("", ",groups=2:5", ",groups=sites:5")
    )
    assert groups.removeprefix(plain) == (
        "; within a round groups of at most 2 ranks, others each time, average their parameters after each 5 "
        "batches, 3 times in a whole one, as they are, whatever the codec is"
    )
    assert "the ranks of each site average" in sites


def test_of_parts_is_told_how_many_values_are_averaged_when_and_as_what() -> None:
    """int8: 260 bytes for 256 values; each average has the fourth part of them."""
    plain, parts, late = (
        explained(parse_sync("sync", f"period=16,codec=int8{more}"))
        for more in ("", ",partial=4:5", ",partial=4:5:2")
    )
    assert parts.period.removeprefix(plain.period) == (
        "; within a round all average one of 4 values after each 5 batches, others each time, by the codec, "
        "3 times in a whole one"
    )
    assert (parts.averages, parts.bytes_per_average) == (3, 260 / 256 / 4)
    assert late.period.removeprefix(parts.period) == (
        ", and take up the mean 2 batches later, as they compute meanwhile"
    )


def test_between_sites_alone_values_are_encoded_but_factors_travel_as_they_are() -> None:
    encoded, factored = (
        explained(parse_sync("sync", f"topology=hierarchy,codec={codec}")).sums
        for codec in ("int8", "powersgd:2")
    )
    assert encoded.startswith("lossy between the sites")
    assert "sites" not in factored
    assert factored.startswith("lossy")


def test_the_survey_s_seven_are_there_by_name() -> None:
    seven = {f"{schedule}-{way}" for schedule in ("bsp", "wfbp", "bytescheduler") for way in ("ps", "a2a")}
    rounds = {"local-sgd", "diloco", "cocod-sgd", "diloco-eager", "partial-averaging"}
    assert set(PRESETS) == seven | rounds | {"mg-wfbp", "asp"}
    assert len({str(method) for method in PRESETS.values()}) == 13
    assert "first K ranks" in explained(parse_sync("sync", "topology=ps:2")).topology
    assert "first K ranks" not in explained(parse_sync("sync", "topology=ps")).topology
    named = explained(parse_sync("sync", "topology=ps:node-1+b")).topology
    assert "named nodes alone" in named
    assert "where all ranks are on them this is topology=ps" in named


def test_a_method_names_its_nodes_and_takes_other_names_for_them() -> None:
    servers, sites, plain = (
        parse_sync("sync", text) for text in ("topology=ps:a+c", "topology=hierarchy:a+b/c", "topology=ps:2")
    )
    assert (servers.named_nodes, sites.named_nodes, plain.named_nodes) == (("a", "c"), ("a", "b", "c"), ())
    assert servers.renamed({"a": "node-0a"}).server_nodes == ("node-0a", "c")
    assert sites.renamed({"b": "node-0b"}).sites == (("a", "node-0b"), ("c",))
    assert plain.renamed({"a": "b"}) == plain


@given(st.text(max_size=140))
def test_any_text_is_a_method_or_refused(text: str) -> None:
    try:
        method = parse_sync("sync", text)
    except InvalidArgumentError:
        return
    assert parse_sync("sync", str(method)) == method
