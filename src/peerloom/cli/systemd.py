"""Units on this machine: where they lie, whose they are, and what systemd is told."""

import os
import re
import shutil
import stat
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from peerloom.cli.unit_text import BACKOFF_VERSION, HEADER
from peerloom.errors import (
    AlreadyExistsError,
    DeadlineError,
    FailedPreconditionError,
    InvalidArgumentError,
    NotFoundError,
    PermissionDeniedError,
)

LIMIT_S = 60.0
_SYSTEM_UNITS, _RUNS_HERE = Path("/etc/systemd/system"), Path("/run/systemd/system")
_NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")
_MODULES = {"agent": "node_agent"}
_SECRETS = ("--join",)


@dataclass(frozen=True)
class Place:
    """A unit's place; there may be none yet."""

    name: str
    is_of_user: bool
    path: Path

    @classmethod
    def of(cls, name: str, is_of_user: bool) -> "Place":
        """The place of the unit of that name. Raises InvalidArgumentError for one that can't be."""
        if not _NAME.fullmatch(name):
            raise InvalidArgumentError.of_field("name", name, "1 to 63 of a-z, 0-9 and - (not at its ends)")
        own = Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config") / "systemd" / "user"
        return cls(name, is_of_user, (own if is_of_user else _SYSTEM_UNITS) / f"peerloom-{name}.service")

    def read(self) -> str:
        """The unit's text. Raises NotFoundError."""
        try:
            return self.path.read_text()
        except FileNotFoundError:
            there = [
                path.stem.removeprefix("peerloom-") for path in self.path.parent.glob("peerloom-*.service")
            ]
            raise NotFoundError.of_name("unit", self.name, there) from None

    def write(self, text: str) -> None:
        """Raises PermissionDeniedError where only root may."""
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self.path.write_text(text)
        except PermissionError as error:
            raise self._refused() from error

    def remove(self) -> None:
        """Raises PermissionDeniedError where only root may. systemd forgets it, too."""
        try:
            self.path.unlink()
        except PermissionError as error:
            raise self._refused() from error
        if _RUNS_HERE.exists():
            self._ctl("daemon-reload")

    def start(self) -> Sequence[str]:
        """Starts it, also after each boot; what to tell. Raises FailedPreconditionError if systemd won't."""
        if not _RUNS_HERE.exists():
            own = "--user " if self.is_of_user else ""
            return (f"systemd doesn't run here; where it does: systemctl {own}enable --now {self.path.name}",)
        self._ctl("daemon-reload")
        self._ctl("enable", self.path.name)
        self._ctl("restart", self.path.name)
        own = "loginctl enable-linger keeps it running while you are logged out"
        log = f"its log: journalctl {'--user ' if self.is_of_user else ''}-u {self.path.stem}"
        return ("started", log, *((own,) if self.is_of_user else ()))

    def stop(self) -> Sequence[str]:
        """Ends it for good; what to tell."""
        if not _RUNS_HERE.exists():
            return ()
        self._ctl("disable", "--now", self.path.name)
        return ("stopped",)

    def state(self) -> str:
        """How its service is, in systemd's words."""
        if not _RUNS_HERE.exists():
            return "systemd doesn't run here, so neither does the service"
        told = self._ctl("show", "--property", "ActiveState,SubState,NRestarts", self.path.name)
        return ", ".join(told.split())

    def _ctl(self, *words: str) -> str:
        command = ["systemctl", *(["--user"] if self.is_of_user else []), *words]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S)
        except (OSError, subprocess.TimeoutExpired) as error:
            raise FailedPreconditionError(f"{' '.join(command)} can't be run: {error}.") from error
        if done.returncode:
            raise FailedPreconditionError(
                f"{' '.join(command)} failed: {done.stderr.strip() or 'without a word'}. The unit is "
                f"{self.path}; see: journalctl -u {self.path.stem}",
                reason="SYSTEMCTL_FAILED",
            )
        return done.stdout

    def _refused(self) -> PermissionDeniedError:
        return PermissionDeniedError(
            f"{self.path} is for root to write: use sudo, or --user for a service of your own systemd.",
            reason="NEEDS_ROOT",
        )


def check_may_write(place: Place, text: str, *, replace: bool) -> None:
    """Raises AlreadyExistsError where a unit of somebody else's, or one that was edited, would be lost."""
    try:
        there = place.path.read_text()
    except FileNotFoundError:
        return
    if not replace and there != text and not there.startswith(HEADER):
        raise AlreadyExistsError(
            f"{place.path} is there, and `peerloom service install` didn't write it: look at it with "
            f"`systemctl cat {place.path.name}`, choose another --unit, or give --replace.",
            reason="FOREIGN_UNIT",
        )


def split_state(
    kind: str, arguments: Sequence[str], *, is_of_user: bool, run_as: str
) -> tuple[tuple[str, ...], str]:
    """The service's flags without --state, and that folder as an absolute path; empty: systemd's own.

    Raises InvalidArgumentError for a secret, which everybody could read in a unit, for an unknown user,
    and for a folder that whoever runs the service couldn't own.
    """
    for word in arguments:
        if "\n" in word:
            raise InvalidArgumentError.of_field("flags", word, "words without line ends")
        if word.partition("=")[0] in _SECRETS:
            variable = f"PEERLOOM_{'NODE' if kind == 'agent' else kind.upper()}_JOIN"
            raise InvalidArgumentError(
                f"A unit is read by everybody, so {word.partition('=')[0]} doesn't belong there: put "
                f"{variable}=... into the environment file that the unit names (see docs/services.md)."
            )
    if is_of_user and run_as:
        raise InvalidArgumentError("--as is for the machine's systemd; your own runs everything as you.")
    if run_as and not _is_user(run_as):
        raise InvalidArgumentError.of_field("as", run_as, "a user of this machine")
    rest, state = _without(arguments, "--state")
    if state and kind == "dashboard":
        raise InvalidArgumentError("The dashboard has no --state: it keeps nothing.")
    if state and not is_of_user and not run_as:
        raise InvalidArgumentError(
            f"The user that systemd makes up can't own {state}: say who runs the service with --as USER, or "
            "leave --state out, and systemd keeps a folder below /var/lib/peerloom."
        )
    return rest, str(Path(state).absolute()) if state else ""


def _is_user(name: str) -> bool:
    import pwd  # here, because only Linux has it, and --help works everywhere

    try:
        pwd.getpwnam(name)
    except KeyError:
        return False
    return True


def _without(arguments: Sequence[str], flag: str) -> tuple[tuple[str, ...], str]:
    rest, value, words = [], "", iter(arguments)
    for word in words:
        if word == flag:
            value = next(words, "")
        elif word.startswith(f"{flag}="):
            value = word.partition("=")[2]
        else:
            rest.append(word)
    return tuple(rest), value


def check_settings(kind: str, flags: Sequence[str]) -> None:
    """Has the service itself look at its flags. Raises InvalidArgumentError with what it says of them."""
    if kind == "dashboard":
        from peerloom.cli.commands.dashboard import dashboard

        dashboard.make_context("peerloom dashboard", list(flags))  # raises click's own errors
        return
    module = f"peerloom.services.{_MODULES.get(kind, kind)}"
    command = [sys.executable, "-m", module, *flags, "--check-settings"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S)
    except subprocess.TimeoutExpired as error:
        raise DeadlineError(f"The {kind} didn't look at its settings within {LIMIT_S:g} s.") from error
    if done.returncode:
        said = (done.stderr.strip().splitlines() or ["it says nothing"])[-1]
        raise InvalidArgumentError(f"the {kind} refuses its settings: {said.removeprefix('error: ')}")


def interpreter(is_of_user: bool, run_as: str) -> str:
    """The Python that runs this. Raises FailedPreconditionError where a made-up user couldn't reach it."""
    if not is_of_user and not run_as:
        python = Path(sys.executable)
        needed = [*python.parents, *python.resolve().parents, *Path(__file__).resolve().parents]
        closed = [path for path in needed if not path.stat().st_mode & stat.S_IXOTH]
        if closed:
            raise FailedPreconditionError(
                f"Peerloom is installed in {sys.prefix}, and {closed[-1]} is closed to the user that systemd "
                "makes up: install it where all may read, e.g. in a virtual environment below /opt, or say "
                "who runs the service with --as USER.",
                reason="INTERPRETER_CLOSED",
            )
    return sys.executable


def systemd_version() -> int:
    """Of the systemd here; without one the first that knows all that a unit may say."""
    program = shutil.which("systemctl")
    if program is None:
        return BACKOFF_VERSION
    told = subprocess.run([program, "--version"], capture_output=True, text=True, timeout=LIMIT_S).stdout
    found = re.match(r"systemd (\d+)", told)
    return int(found[1]) if found else BACKOFF_VERSION
