"""Which registry to talk to, and who says so."""

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from peerloom.errors import ConfigurationError, InvalidArgumentError, NotFoundError
from peerloom.kit.identity import FILE_NAME
from peerloom.kit.replica_addresses import check_addresses

DEFAULT_ADDRESS = "127.0.0.1:7400"
SYSTEM_FILE = "system.json"
LOGIN_FOLDER = "login"
PROFILES_FOLDER = "profiles"
ADDRESS_FILE = "address"
IN_USE_FILE = ".in-use"  # no profile's name begins with a dot


@dataclass(frozen=True)
class Address:
    """The registry's host:port, or its replicas' with commas; `source` says in words where that came from.

    `identity` is the PEM file that a client proves itself with there; None: all is plain.
    """

    text: str
    source: str
    identity: Path | None = None


def find_address(
    argument: str | None,
    identity: str = "",
    environment: Mapping[str, str] | None = None,
    profile: str = "",
) -> Address:
    """The first of: the argument, the profile, PEERLOOM_ADDRESS, PEERLOOM_PROFILE, the profile in use, the
    embedded system that runs, the login, 127.0.0.1:7400.

    The embedded system writes its address to system.json in PEERLOOM_STATE, or else in ~/.peerloom; profiles
    and the login lie there too. The identity is the first of: the file given, PEERLOOM_IDENTITY, that of the
    profile or of the login, if it is one to that address. Raises InvalidArgumentError for what isn't
    host:port, NotFoundError for a profile that there isn't, ConfigurationError for a file that can't be
    understood.
    """
    known = os.environ if environment is None else environment
    folder = state_folder(known)
    chosen = profile or (profile_asked(known) if not (argument or known.get("PEERLOOM_ADDRESS")) else "")
    kept = _profile(folder, chosen) if chosen else None
    login = read_kept(folder / LOGIN_FOLDER, "the login")
    found = _find(argument, known, kept, login)
    file = identity or known.get("PEERLOOM_IDENTITY", "")
    if file:
        return replace(found, identity=Path(file).expanduser())
    same = [each for each in (kept, login) if each and each.text == found.text]
    return replace(found, identity=same[0].identity) if same else found


def state_folder(environment: Mapping[str, str]) -> Path:
    """PEERLOOM_STATE, or ~/.peerloom."""
    state = environment.get("PEERLOOM_STATE")
    return Path(state).expanduser() if state else Path.home() / ".peerloom"


def read_kept(folder: Path, what: str) -> Address | None:
    """The address and identity that a login or a profile consists of; None without.

    Raises ConfigurationError.
    """
    text = _read(folder / ADDRESS_FILE, "remove the folder, or log in again")
    if not text:
        return None
    file = folder / FILE_NAME
    return replace(_checked(text, f"{what} in {folder}"), identity=file if file.exists() else None)


def profile_asked(environment: Mapping[str, str]) -> str:
    """The name of the profile that holds if none is given: PEERLOOM_PROFILE, or the one in use, or ""."""
    in_use = state_folder(environment) / PROFILES_FOLDER / IN_USE_FILE
    return environment.get("PEERLOOM_PROFILE") or _read(in_use, "use a profile again")


def profile_names(folder: Path) -> list[str]:
    """All profiles of a state folder, by name."""
    return sorted(path.parent.name for path in (folder / PROFILES_FOLDER).glob(f"*/{ADDRESS_FILE}"))


def _profile(folder: Path, name: str) -> Address:
    names = profile_names(folder)
    kept = read_kept(folder / PROFILES_FOLDER / name, f"the profile {name}") if name in names else None
    if kept is None:
        raise NotFoundError.of_name("profile", name, names)
    return kept


def _find(
    argument: str | None, known: Mapping[str, str], kept: Address | None, login: Address | None
) -> Address:
    if argument:
        return _checked(argument, "the argument `address`")
    if kept:
        return kept
    if known.get("PEERLOOM_ADDRESS"):
        return _checked(known["PEERLOOM_ADDRESS"], "the environment variable PEERLOOM_ADDRESS")
    return _embedded(system_file(known)) or login or Address(DEFAULT_ADDRESS, "the default")


def _read(path: Path, hint: str) -> str:
    try:
        return path.read_text(encoding="utf-8").strip()
    except (FileNotFoundError, NotADirectoryError):
        return ""
    except (OSError, ValueError) as error:
        raise ConfigurationError(f"{path} can't be read ({error}): {hint}.") from error


def system_file(environment: Mapping[str, str]) -> Path:
    """Where an embedded system writes how it can be reached."""
    return state_folder(environment) / SYSTEM_FILE


def _embedded(path: Path) -> Address | None:
    try:
        text = json.loads(path.read_text(encoding="utf-8"))["registry"]
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError, KeyError, TypeError) as error:
        hint = "start the system again with `peerloom up`, or give an address"
        raise ConfigurationError(
            f"{path} doesn't tell the registry's address ({error!r}): {hint}."
        ) from error
    return _checked(str(text), f"the embedded system's {path}")


def _checked(text: str, source: str) -> Address:
    try:
        check_addresses("address", text)
    except InvalidArgumentError as error:
        raise InvalidArgumentError(
            f"{error.message} It came from {source}.", reason=error.reason, metadata=error.metadata
        ) from None
    return Address(text, source)
