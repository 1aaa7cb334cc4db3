"""Suggestions for a mistyped name: what they cost is bounded, and digests get none."""

import difflib
from typing import Any

import pytest

from peerloom.errors import NotFoundError, nearest


def test_the_most_alike_come_first() -> None:
    assert nearest("tesis", ["random", "thesis", "thesis-fixed", "beta"]) == ["thesis", "thesis-fixed"]
    assert nearest("zzz", ["random", "thesis"]) == []


def test_a_digest_is_not_told_of_others() -> None:
    kept = ["86de7c31" + "0" * 56]
    assert nearest("86de7c31" + "1" * 56, kept) == []
    assert "Did you mean" not in NotFoundError.of_name("artifact", "86de7c31" + "1" * 56, kept).message
    assert nearest("86de7c32", ["86de7c31"]) == ["86de7c31"], "the few digits that a person types are names"


def test_a_hundred_of_many_are_compared_those_that_begin_alike_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a million names a few thousand are looked at, and a name beyond any limit not at all."""
    compared: list[int] = []
    whole = difflib.get_close_matches

    def counting(word: str, possibilities: list[str], **more: Any) -> list[str]:
        compared.append(len(possibilities))
        return whole(word, possibilities, **more)

    monkeypatch.setattr(difflib, "get_close_matches", counting)
    known = [f"n{number:04}" for number in range(1000)] + ["lab-red"] + ["m-late"] * 1_000_000
    assert nearest("lab-rad", iter(known)) == ["lab-red"]
    assert compared == [100]
    assert nearest("x" * 1_000_000, known) == []
    assert compared == [100]
