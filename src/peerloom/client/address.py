"""Which registry to talk to, and who says so."""

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from peerloom.errors import ConfigurationError, InvalidArgumentError
from peerloom.kit.checks import check_address

DEFAULT_ADDRESS = "127.0.0.1:7400"
SYSTEM_FILE = "system.json"
LOGIN_FOLDER = "login"
LOGIN_ADDRESS = "address"


@dataclass(frozen=True)
class Address:
    """The registry's host:port; `source` says in words where it came from.

    `identity` is the PEM file that a client proves itself with there; None: all is plain.
    """

    text: str
    source: str
    identity: Path | None = None


def find_address(
    argument: str | None, identity: str = "", environment: Mapping[str, str] | None = None
) -> Address:
    """The first of: the argument, PEERLOOM_ADDRESS, the embedded system that runs, the login, 127.0.0.1:7400.

    The embedded system writes its address to system.json in PEERLOOM_STATE, or else in ~/.peerloom; a login
    lies there too. The identity is the first of: the file given, PEERLOOM_IDENTITY, the login, if it is one
    to that address. Raises InvalidArgumentError for what isn't host:port, ConfigurationError for a file that
    can't be understood.
    """
    known = os.environ if environment is None else environment
    login = read_login(known)
    found = _find(argument, known, login)
    file = identity or known.get("PEERLOOM_IDENTITY", "")
    if file:
        return replace(found, identity=Path(file).expanduser())
    return replace(found, identity=login.identity) if login and login.text == found.text else found


def login_folder(environment: Mapping[str, str]) -> Path:
    """Where `peerloom login` puts what it got."""
    return system_file(environment).parent / LOGIN_FOLDER


def read_login(environment: Mapping[str, str]) -> Address | None:
    """The registry that the user logged in to; None without. Raises ConfigurationError."""
    folder = login_folder(environment)
    try:
        text = (folder / LOGIN_ADDRESS).read_text(encoding="utf-8").strip()
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError) as error:
        raise ConfigurationError(f"{folder} can't be read ({error}): log in again.") from error
    return replace(_checked(text, f"the login in {folder}"), identity=folder / "identity.pem")


def _find(argument: str | None, known: Mapping[str, str], login: Address | None) -> Address:
    if argument:
        return _checked(argument, "the argument `address`")
    if known.get("PEERLOOM_ADDRESS"):
        return _checked(known["PEERLOOM_ADDRESS"], "the environment variable PEERLOOM_ADDRESS")
    return _embedded(system_file(known)) or login or Address(DEFAULT_ADDRESS, "the default")


def system_file(environment: Mapping[str, str]) -> Path:
    """Where an embedded system writes how it can be reached."""
    state = environment.get("PEERLOOM_STATE")
    return (Path(state).expanduser() if state else Path.home() / ".peerloom") / SYSTEM_FILE


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
        check_address("address", text)
    except InvalidArgumentError as error:
        raise InvalidArgumentError(
            f"{error.message} It came from {source}.", reason=error.reason, metadata=error.metadata
        ) from None
    return Address(text, source)
