"""What `auto` may be asked for, and what is refused with which reason."""

import pytest

from peerloom.errors import InvalidArgumentError
from peerloom.kit.sync_auto import AutoSync, asked_sync, first_method, is_auto, why_gloo
from peerloom.kit.sync_grammar import parse_sync
from peerloom.kit.sync_method import SyncMethod
from peerloom.kit.sync_model.sync_choice import QUALITIES, candidates


def test_auto_is_exact_where_nothing_else_is_said() -> None:
    assert asked_sync("sync", "auto") == AutoSync("exact")
    assert str(asked_sync("sync", "auto")) == "auto,quality=exact"


@pytest.mark.parametrize("quality", QUALITIES)
def test_what_a_record_has_reads_the_same_again(quality: str) -> None:
    asked = asked_sync("sync", f"auto,quality={quality}")
    assert asked == AutoSync(quality)
    assert asked_sync("sync", str(asked)) == asked


def test_whatever_is_not_auto_is_a_method() -> None:
    assert asked_sync("sync", "codec=int8") == parse_sync("sync", "codec=int8")
    assert not is_auto("")
    assert not is_auto("wfbp-a2a")


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (
            "auto,quality=neer",
            "quality is 'neer', but must be one of exact, near, relaxed, did you mean near",
        ),
        ("auto,quality=", "one of exact, near, relaxed"),
        ("auto,qualty=near", "did you mean quality"),
        ("auto,codec=int8", "chooses all else by itself"),
        ("auto,quality=near,quality=near", "chooses all else by itself"),
        ("auto,", "chooses all else by itself"),
        ("auto=near", "KEY=VALUE pairs"),
        ("auto" + ",quality=near" * 80, "at most 1024 characters"),
    ],
)
def test_what_cannot_be_asked_is_refused_with_the_reason(text: str, why: str) -> None:
    with pytest.raises(InvalidArgumentError, match=why) as refused:
        asked_sync("spec.sync", text)
    assert refused.value.message.startswith("spec.sync is ")


def test_what_auto_cannot_be_with_is_told_with_the_nearest() -> None:
    with pytest.raises(InvalidArgumentError, match=r"robust is krum.*the nearest is .*topology=direct"):
        asked_sync("sync", "auto", robust="krum")
    with pytest.raises(InvalidArgumentError, match=r"never over NCCL; the nearest is .*topology=ring"):
        asked_sync("sync", "auto", backend="nccl")
    assert "NCCL" in why_gloo("auto,quality=near")
    assert why_gloo(str(SyncMethod())) == ""


def test_the_first_steps_go_by_the_plain_all_reduce() -> None:
    assert first_method("auto,quality=relaxed") == SyncMethod()
    assert first_method("auto,quality=near", bears_rounds=True) == SyncMethod()
    relaxed = first_method("auto,quality=relaxed", bears_rounds=True)
    assert relaxed == parse_sync("sync", "period=16,codec=mxfp4")
    assert relaxed in candidates("relaxed")
    assert first_method("codec=int8") == parse_sync("sync", "codec=int8")
