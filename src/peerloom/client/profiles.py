"""Profiles: systems by name, each with who this machine's user is there, in the user's state folder."""

import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from peerloom.client.address import (
    ADDRESS_FILE,
    IN_USE_FILE,
    PROFILES_FOLDER,
    profile_asked,
    profile_names,
    read_kept,
    state_folder,
)
from peerloom.errors import NotFoundError
from peerloom.kit.checks import check_name
from peerloom.kit.identity import FILE_NAME, Identity, write_private
from peerloom.kit.replica_addresses import check_addresses


@dataclass(frozen=True)
class Profile:
    """A system's `address`, host:port, and `who` one is there ("": nobody, as it has no door)."""

    name: str
    address: str
    who: str
    is_in_use: bool


class Profiles:
    """The profiles of a state folder. All raise NotFoundError for one that there isn't."""

    def __init__(self, environment: Mapping[str, str] | None = None) -> None:
        self._environment = os.environ if environment is None else environment
        self._state = state_folder(self._environment)
        self._folder = self._state / PROFILES_FOLDER

    def list(self) -> list[Profile]:
        """All, by name. Raises ConfigurationError for one that can't be read."""
        return [self.get(name) for name in profile_names(self._state)]

    def get(self, name: str) -> Profile:
        """One by name."""
        kept = read_kept(self._known(name), f"the profile {name}")
        if kept is None:  # removed since it was found
            raise NotFoundError.of_name("profile", name, profile_names(self._state))
        who = str(Identity(kept.identity).principal) if kept.identity else ""
        return Profile(name, kept.text, who, profile_asked(self._environment) == name)

    def set(self, name: str, address: str, identity: Path | None = None) -> Profile:
        """Keeps a system under a name, with a copy of the PEM file `identity`; one of that name is replaced.

        Raises InvalidArgumentError for a name or an address that can't be one, ConfigurationError for an
        identity that can't be read.
        """
        check_name("profile", name)
        check_addresses("address", address)
        folder = self._folder / name
        if identity is not None:
            Identity(identity)
            write_private(folder / FILE_NAME, identity.read_bytes())
        else:
            (folder / FILE_NAME).unlink(missing_ok=True)
        write_private(folder / ADDRESS_FILE, f"{address}\n".encode())
        return self.get(name)

    def use(self, name: str) -> None:
        """From now on this one holds where nothing else is said; "": none does."""
        if name:
            self._known(name)
            write_private(self._folder / IN_USE_FILE, f"{name}\n".encode())
        else:
            (self._folder / IN_USE_FILE).unlink(missing_ok=True)

    def remove(self, name: str) -> None:
        """Forgets one, with its identity; if it was in use, none is."""
        folder = self._known(name)
        if profile_asked({**self._environment, "PEERLOOM_PROFILE": ""}) == name:
            self.use("")
        shutil.rmtree(folder)

    def _known(self, name: str) -> Path:
        names = profile_names(self._state)
        if name not in names:
            raise NotFoundError.of_name("profile", name, names)
        return self._folder / name
