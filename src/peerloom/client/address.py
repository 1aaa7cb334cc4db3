"""Which registry to talk to, and who says so."""

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from peerloom.errors import ConfigurationError, InvalidArgumentError
from peerloom.kit.checks import check_address

DEFAULT_ADDRESS = "127.0.0.1:7400"
SYSTEM_FILE = "system.json"


@dataclass(frozen=True)
class Address:
    """The registry's host:port; `source` says in words where it came from."""

    text: str
    source: str


def find_address(argument: str | None, environment: Mapping[str, str] | None = None) -> Address:
    """The first of: the argument, PEERLOOM_ADDRESS, the embedded system that runs, 127.0.0.1:7400.

    The embedded system writes its address to system.json in PEERLOOM_STATE, or else in ~/.peerloom. Raises
    InvalidArgumentError for what isn't host:port, ConfigurationError for a file that can't be understood.
    """
    known = os.environ if environment is None else environment
    if argument:
        return _checked(argument, "the argument `address`")
    if known.get("PEERLOOM_ADDRESS"):
        return _checked(known["PEERLOOM_ADDRESS"], "the environment variable PEERLOOM_ADDRESS")
    return _embedded(system_file(known)) or Address(DEFAULT_ADDRESS, "the default")


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
