"""Where the SDK looks for the registry, in which order, and what it says of a wrong address."""

from pathlib import Path

import pytest

from peerloom.client.address import find_address, system_file
from peerloom.errors import InvalidArgumentError

NOWHERE = {"PEERLOOM_STATE": "/dev/null/nowhere"}


def test_the_argument_wins_over_the_environment() -> None:
    found = find_address("10.0.0.1:7400", environment={"PEERLOOM_ADDRESS": "10.0.0.2:7400"})
    assert found.text == "10.0.0.1:7400"
    assert "argument" in found.source


def test_the_environment_wins_over_the_default() -> None:
    found = find_address(None, environment={"PEERLOOM_ADDRESS": "10.0.0.2:7400", **NOWHERE})
    assert found.text == "10.0.0.2:7400"
    assert "PEERLOOM_ADDRESS" in found.source


@pytest.mark.parametrize("unset", [{}, {"PEERLOOM_ADDRESS": ""}])
def test_without_anything_it_is_the_registrys_usual_port(unset: dict[str, str]) -> None:
    assert find_address("", environment={**unset, **NOWHERE}).text == "127.0.0.1:7400"


def test_the_state_folder_is_at_home_unless_said_otherwise() -> None:
    assert system_file({}) == Path.home() / ".peerloom" / "system.json"
    assert system_file({"PEERLOOM_STATE": "/srv/loom"}) == Path("/srv/loom/system.json")


@pytest.mark.parametrize("wrong", ["localhost", "localhost:0", "localhost:65536", "a b:1", ":7400"])
def test_a_wrong_address_is_refused_with_its_source(wrong: str) -> None:
    with pytest.raises(InvalidArgumentError, match=r"host:port.*PEERLOOM_ADDRESS") as caught:
        find_address(None, environment={"PEERLOOM_ADDRESS": wrong})
    assert caught.value.metadata["field"] == "address"
