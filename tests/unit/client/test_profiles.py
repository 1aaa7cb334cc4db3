"""Profiles: systems by name, which of them holds, and who one is there."""

import time
from pathlib import Path

import pytest

from peerloom.admission.certificates import Authority
from peerloom.client.address import find_address
from peerloom.client.profiles import Profile, Profiles
from peerloom.errors import ConfigurationError, InvalidArgumentError, NotFoundError
from peerloom.kit.identity import write_identity
from peerloom.kit.principal import Principal, Role

LAB, HOME = "10.0.0.1:7400", "10.0.0.2:7400"


@pytest.fixture
def known(tmp_path: Path) -> dict[str, str]:
    """An environment with an empty state folder."""
    return {"PEERLOOM_STATE": str(tmp_path / "state")}


@pytest.fixture
def alice(tmp_path: Path) -> Path:
    """Alice's identity."""
    path = tmp_path / "alice.pem"
    authority = Authority.new(time.time(), 1)
    write_identity(path, authority.credentials(Principal(Role.USER, "alice", "alice"), time.time(), 3600))
    return path


def address(known: dict[str, str], **arguments: str) -> tuple[str, Path | None]:
    argument = arguments.pop("argument", None)
    found = find_address(argument, environment=known, **arguments)
    return found.text, found.identity


def test_the_flag_then_the_environment_then_the_one_in_use(known: dict[str, str]) -> None:
    profiles = Profiles(known)
    for name, where in (("lab", LAB), ("home", HOME), ("third", "10.0.0.3:7400")):
        profiles.set(name, where)
    assert address(known) == ("127.0.0.1:7400", None), "kept, and not in use"
    profiles.use("lab")
    assert address(known) == (LAB, None)
    assert address({**known, "PEERLOOM_PROFILE": "home"}) == (HOME, None)
    said = {**known, "PEERLOOM_PROFILE": "home", "PEERLOOM_ADDRESS": "10.0.0.9:1"}
    assert address(said) == ("10.0.0.9:1", None)
    assert address(said, profile="third") == ("10.0.0.3:7400", None)
    assert address(said, profile="third", argument="10.0.0.8:1") == ("10.0.0.8:1", None)


def test_one_in_use_comes_before_a_system_that_runs_here(known: dict[str, str]) -> None:
    profiles = Profiles(known)
    profiles.set("lab", LAB)
    (Path(known["PEERLOOM_STATE"]) / "system.json").write_text('{"registry": "127.0.0.1:5000"}')
    assert address(known) == ("127.0.0.1:5000", None)
    profiles.use("lab")
    assert address(known) == (LAB, None)
    profiles.use("")
    assert address(known) == ("127.0.0.1:5000", None)


def test_an_identity_is_copied_for_ones_own_eyes_and_holds_at_that_address_alone(
    known: dict[str, str], alice: Path
) -> None:
    made = Profiles(known).set("lab", LAB, alice)
    assert made == Profile("lab", LAB, "user alice of alice", is_in_use=False)
    alice.unlink()
    text, identity = address(known, profile="lab")
    assert text == LAB
    assert identity is not None
    assert identity.stat().st_mode & 0o077 == 0
    assert address(known, profile="lab", argument=LAB) == (LAB, identity)
    assert address(known, profile="lab", argument=HOME) == (HOME, None)
    assert address(known, profile="lab", identity="/other.pem") == (LAB, Path("/other.pem"))


def test_one_that_is_set_again_forgets_who_one_was(known: dict[str, str], alice: Path) -> None:
    profiles = Profiles(known)
    profiles.set("lab", LAB, alice)
    assert profiles.set("lab", HOME) == Profile("lab", HOME, "", is_in_use=False)


def test_one_that_is_removed_is_not_in_use_any_more(known: dict[str, str]) -> None:
    profiles = Profiles(known)
    profiles.set("lab", LAB)
    profiles.set("home", HOME)
    profiles.use("lab")
    assert [(each.name, each.is_in_use) for each in profiles.list()] == [("home", False), ("lab", True)]
    profiles.remove("lab")
    assert address(known)[0] == "127.0.0.1:7400"
    assert [each.name for each in profiles.list()] == ["home"]


@pytest.mark.parametrize("verb", ["get", "use", "remove"])
def test_one_that_there_is_not_names_the_nearest(known: dict[str, str], verb: str) -> None:
    profiles = Profiles(known)
    profiles.set("lab", LAB)
    with pytest.raises(NotFoundError, match=r"no profile 'lap'\. Did you mean lab\?"):
        getattr(profiles, verb)("lap")
    with pytest.raises(NotFoundError, match="no profile 'lap'"):
        address(known, profile="lap")


@pytest.mark.parametrize("name", ["", "..", ".in-use", "a/b", "Lab"])
def test_a_name_is_no_path(known: dict[str, str], name: str) -> None:
    with pytest.raises(InvalidArgumentError, match="profile is"):
        Profiles(known).set(name, LAB)


def test_what_cannot_be_is_not_kept(known: dict[str, str], tmp_path: Path) -> None:
    profiles = Profiles(known)
    with pytest.raises(InvalidArgumentError, match="host:port"):
        profiles.set("lab", "nowhere")
    (tmp_path / "no.pem").write_text("nothing")
    with pytest.raises(ConfigurationError):
        profiles.set("lab", LAB, tmp_path / "no.pem")
    assert profiles.list() == []
