"""What members tell each other to get connected, as a worker keeps it."""

import threading

import pytest

from peerloom.v1.trainer_pb2 import StoreEntry
from peerloom.worker.store_entries import EntriesByGeneration, StoreEntries

LONG_S = 600.0


def entry(key: str, value: bytes) -> StoreEntry:
    return StoreEntry(generation=3, key=key, value=value)


def test_what_is_set_is_told_and_there_once_the_trainer_has_told_it_to_all() -> None:
    told: list[StoreEntry] = []
    entries = StoreEntries(3, told.append)
    entries.set("0/1", b"here")
    assert told == entries.own() == [entry("0/1", b"here")]
    assert not entries.has(["0/1"])
    entries.heard(told[0])
    assert entries.has(["0/1"])
    assert not entries.has(["0/1", "0/2"])
    assert entries.get("0/1", LONG_S) == b"here"


def test_a_wait_ends_with_the_entry() -> None:
    entries, got = StoreEntries(3, lambda entry: None), list[bytes]()
    waiting = threading.Thread(target=lambda: got.append(entries.get("0/2", LONG_S)))
    waiting.start()
    entries.heard(entry("0/1", b"another"))
    entries.heard(entry("0/2", b"this one"))
    waiting.join(60)
    assert got == [b"this one"]


def test_a_wait_ends_with_the_limit_and_with_the_close() -> None:
    entries = StoreEntries(3, lambda entry: None)
    with pytest.raises(RuntimeError, match="Timed out waiting for 0/1"):
        entries.get("0/1", 0.0)
    entries.heard(entry("0/1", b"x"))
    entries.close("a peer went away")
    entries.close("later")
    for key in ("0/1", "0/2"):
        with pytest.raises(RuntimeError, match="a peer went away"):
            entries.get(key, LONG_S)


def test_of_a_past_generation_nothing_comes_any_more() -> None:
    told: list[StoreEntry] = []
    entries = EntriesByGeneration(told.append)
    for generation in (1, 2, 3):
        entries.begin(generation)
        entries.of(generation).set("0/0", b"here")
    with pytest.raises(RuntimeError, match="a newer generation"):
        entries.of(1).get("0/0", LONG_S)
    assert entries.own() == told[1:]
    entries.of(2).heard(told[1])
    assert entries.of(2).get("0/0", LONG_S) == b"here"
