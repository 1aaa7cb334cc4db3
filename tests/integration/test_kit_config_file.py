"""Configuration files: the weakest source, and checked like the others."""

from dataclasses import dataclass
from pathlib import Path

import pytest

from peerloom.errors import ConfigurationError
from peerloom.kit.config import knob, load_config


@dataclass(frozen=True)
class Config:
    """A service of the tests."""

    listen: str = knob("127.0.0.1:7000", "Where to listen.")
    heartbeat_s: float = knob(1.0, "Raise it: less load. Lower it: deaths are seen sooner.")
    slots: int = knob(1, "Slots to lend.")
    labels: tuple[str, ...] = knob((), "Free words.")


def load(*arguments: str, **environment: str) -> Config:
    return load_config(Config, "tester", arguments, environment)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "peerloom.toml"
    path.write_text(
        '[tester]\nslots = 2\nheartbeat_s = 2\nlisten = "file:1"\nlabels = ["a", "b"]\n[other]\nx = 1\n'
    )
    return path


def test_a_flag_beats_the_environment_which_beats_the_file(file: Path) -> None:
    config = load(
        "--config", str(file), "--slots", "4", PEERLOOM_TESTER_SLOTS="3", PEERLOOM_TESTER_LISTEN="env:1"
    )
    assert config == Config(slots=4, listen="env:1", heartbeat_s=2.0, labels=("a", "b"))


def test_the_file_can_be_named_by_the_environment(file: Path) -> None:
    assert load(PEERLOOM_CONFIG=str(file)).slots == 2


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (b"[tester]\nslot = 2", ["'slot'", "slots"]),
        (b"[testr]\nslots = 2", ["[testr]", "[tester]"]),
        (b"tester = 2", ["[tester]", "table"]),
        (b"[tester]\nslots = 2.5", ["slots", "2.5", "int"]),
        (b"[tester]\nslots = true", ["slots", "True", "int"]),
        (b"[tester]\nlisten = 7", ["listen", "7", "str"]),
        (b"[tester\n", ["can't be read"]),
        (b"\xff\xfe", ["can't be read"]),
    ],
)
def test_what_is_wrong_in_a_file_is_named(tmp_path: Path, text: bytes, words: list[str]) -> None:
    path = tmp_path / "peerloom.toml"
    path.write_bytes(text)
    with pytest.raises(ConfigurationError) as raised:
        load("--config", str(path))
    assert all(word in raised.value.message for word in words), raised.value.message
