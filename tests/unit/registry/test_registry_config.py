"""The registry's settings: presets, explicit knobs over them, and clear refusals."""

import pytest

from peerloom.errors import ConfigurationError
from peerloom.kit.config import load_config
from peerloom.services.registry.config import PRESETS, RegistryConfig
from peerloom.services.registry.membership.decisions import Timing


def load(*arguments: str, **environment: str) -> RegistryConfig:
    """The configuration as the process would have it."""
    return load_config(RegistryConfig, "registry", arguments, environment)


@pytest.mark.parametrize("preset", sorted(PRESETS))
def test_each_preset_is_a_timing_that_is_accepted(preset: str) -> None:
    assert load("--preset", preset).timing() == PRESETS[preset]


def test_an_explicit_knob_overrides_the_preset() -> None:
    timing = load("--preset", "wan", "--dead-after-s", "90", PEERLOOM_REGISTRY_SUSPECT_AFTER_S="30").timing()
    assert timing == Timing(5.0, 30.0, 90.0, 30.0)


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--preset", "lam"], "Did you mean lan"),
        (["--suspect-after-s", "0.5"], "grow in this order"),
        (["--dead-after-s", "nan"], "grow in this order"),
        (["--dead-after-s", "inf"], "grow in this order"),
        (["--heartbeat-interval-s", "0"], "must be above 0"),
        (["--restart-grace-s", "-1"], "restart_grace_s is -1"),
    ],
)
def test_a_timing_that_cannot_work_is_refused(arguments: list[str], told: str) -> None:
    with pytest.raises(ConfigurationError, match=told):
        load(*arguments).timing()


@pytest.mark.parametrize("name", ["lab-a", "default/peerloom", "a", "0.1_x", "a" * 127])
def test_a_system_may_have_a_name(name: str) -> None:
    load("--system", name).check()


@pytest.mark.parametrize("name", ["Lab", "a b", "-a", "a/", "a" * 128, "a\n"])
def test_a_name_that_would_not_be_told_from_others_is_refused(name: str) -> None:
    with pytest.raises(ConfigurationError, match="as in lab-a"):
        load("--system", name).check()


def test_the_database_lies_in_the_state_folder_unless_told_otherwise() -> None:
    assert load("--state", "/srv/x").database_url() == "sqlite:////srv/x/registry.sqlite"
    assert load("--database", "postgresql://db/x").database_url() == "postgresql://db/x"
