"""Configuration: which source wins, what is converted, and what an unknown name is told."""

from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from peerloom.errors import ConfigurationError
from peerloom.kit.config import knob, load_config


@dataclass(frozen=True)
class Config:
    """A service of the tests."""

    listen: str = knob("127.0.0.1:7000", "Where to listen.")
    heartbeat_s: float = knob(1.0, "Raise it: less load. Lower it: deaths are seen sooner.")
    slots: int = knob(1, "Slots to lend.")
    allow_plain: bool = knob(False, "No TLS; 100% of it.")
    labels: tuple[str, ...] = knob((), "Free words.")
    seed: int | None = knob(None, "Makes chance repeatable.")


def load(*arguments: str, **environment: str) -> Config:
    return load_config(Config, "tester", arguments, environment)


def test_defaults_hold_when_nothing_is_given() -> None:
    assert load() == Config()


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--slots", "8"], Config(slots=8)),
        (["--slots=8"], Config(slots=8)),
        (["--heartbeat-s", "0.5"], Config(heartbeat_s=0.5)),
        (["--allow-plain"], Config(allow_plain=True)),
        (["--allow-plain", "no"], Config(allow_plain=False)),
        (["--allow-plain=YES"], Config(allow_plain=True)),
        (["--labels", "a, b,,c"], Config(labels=("a", "b", "c"))),
        (["--labels", ""], Config(labels=())),
        (["--seed", "7"], Config(seed=7)),
    ],
)
def test_a_flags_text_becomes_the_fields_type(arguments: list[str], expected: Config) -> None:
    assert load(*arguments) == expected


@pytest.mark.parametrize(
    ("arguments", "environment", "words"),
    [
        (["--slot", "2"], {}, ["flag '--slot'", "--slots"]),
        (["--hartbeat-s=2"], {}, ["'--hartbeat-s'", "--heartbeat-s"]),
        (["--zzz"], {}, ["'--zzz'", "Known:", "--labels"]),
        ([], {"PEERLOOM_TESTER_SLOT": "2"}, ["PEERLOOM_TESTER_SLOT'", "PEERLOOM_TESTER_SLOTS"]),
        (["--slots", "many"], {}, ["--slots", "'many'", "int"]),
        (
            [],
            {"PEERLOOM_TESTER_ALLOW_PLAIN": "perhaps"},
            ["PEERLOOM_TESTER_ALLOW_PLAIN", "'perhaps'", "bool"],
        ),
        (["--config", "/does/not/exist.toml"], {}, ["/does/not/exist.toml", "can't be read"]),
    ],
)
def test_what_is_wrong_is_named(arguments: list[str], environment: dict[str, str], words: list[str]) -> None:
    with pytest.raises(ConfigurationError) as raised:
        load(*arguments, **environment)
    assert all(word in raised.value.message for word in words), raised.value.message


def test_another_services_environment_is_left_alone() -> None:
    assert load(PEERLOOM_REGISTRY_SLOTZ="2", PEERLOOM_TESTERS="x") == Config()


def test_help_names_each_knob_with_its_cost_and_default(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        load("--help")
    shown = " ".join(capsys.readouterr().out.split())
    assert "--heartbeat-s" in shown
    assert "Lower it: deaths are seen sooner. [default: 1.0]" in shown
    assert "100% of it" in shown


def test_a_flag_beats_the_environment() -> None:
    config = load("--slots", "4", PEERLOOM_TESTER_SLOTS="3", PEERLOOM_TESTER_LISTEN="env:1")
    assert config == Config(slots=4, listen="env:1")


@given(st.integers(), st.floats(allow_nan=False), st.booleans())
def test_whatever_can_be_said_by_a_flag_can_be_said_by_the_environment(
    slots: int, beat: float, plain: bool
) -> None:
    flags = load(f"--slots={slots}", f"--heartbeat-s={beat}", f"--allow-plain={str(plain).lower()}")
    environment = load(
        PEERLOOM_TESTER_SLOTS=str(slots),
        PEERLOOM_TESTER_HEARTBEAT_S=str(beat),
        PEERLOOM_TESTER_ALLOW_PLAIN=str(plain),
    )
    assert flags == environment == Config(slots=slots, heartbeat_s=beat, allow_plain=plain)


def test_help_has_the_form_of_the_command_lines(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        load("-h")
    assert ended.value.code == 0
    assert capsys.readouterr().out.startswith("Usage: peerloom tester [OPTIONS]\n")
