"""A process of a system: it says one line when it is ready, is told to end, and keeps a log."""

import os
import select
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from peerloom.embedded.rules import GiveUp, Restart, decide_restart, describe_exit
from peerloom.errors import UnavailableError

START_LIMIT_S = 60.0
Decide = Callable[[Sequence[float], float, int], Restart | GiveUp]


class SupervisedProcess:
    """One process, which can be started again after its end; `says` begins the line it prints when ready."""

    def __init__(self, name: str, log: Path, says: str = "address=") -> None:
        self.name = name
        self.log = log
        self._says = says
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        """Of the newest process; 0 before the first."""
        return self._process.pid if self._process else 0

    def start(
        self,
        command: Sequence[str],
        lifeline: int,
        inherited: Sequence[int] = (),
        environment: Mapping[str, str] | None = None,
        prepare: Callable[[], None] = lambda: None,
    ) -> None:
        """Starts it; `lifeline` is the read end of the pipe that ends it with its starter.

        `prepare` is called in between, when its log is open.
        """
        self.close()
        self.log.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with open(self.log, "ab", opener=_open_privately) as log:
            prepare()
            # A session of its own: Ctrl-C in the terminal reaches the supervisor only, which stops in order.
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                env={**os.environ, **(environment or {}), "PEERLOOM_LIFELINE": str(lifeline)},
                pass_fds=(lifeline, *inherited),
                start_new_session=True,
            )

    def wait_until_ready(self) -> str:
        """What follows `says` on its line. Raises UnavailableError when it ends or keeps silent instead."""
        assert self._process is not None, "start comes first"
        assert self._process.stdout is not None, "start opens it"
        output, deadline_s = self._process.stdout.fileno(), time.monotonic() + START_LIMIT_S
        text = b""
        while not text.endswith(b"\n"):
            left_s = deadline_s - time.monotonic()
            if left_s <= 0 or not select.select([output], [], [], left_s)[0]:
                raise self._failure(f"said nothing for {START_LIMIT_S:.0f} s")
            part = os.read(output, 4096)
            if not part:
                raise self._failure(describe_exit(self._process.wait()))
            text += part
        line = text.decode(errors="replace").strip()
        if not line.startswith(self._says):
            raise self._failure(f"printed {line!r} instead of {self._says}...")
        return line.removeprefix(self._says)

    def _failure(self, what: str) -> UnavailableError:
        told = last_error(self.log) or _last_line(self.log)
        its_words = f" It says: {told}" if told else ""
        return UnavailableError(f"{self.name} did not come up: it {what}.{its_words} Its log: {self.log}")

    def wait(self) -> int:
        """The exit status, once it has ended."""
        assert self._process, "start comes first"
        return self._process.wait()

    def send_signal(self, number: int) -> None:
        """Sends it a signal, unless it has ended."""
        if self._process and self._process.poll() is None:
            with suppress(ProcessLookupError):
                self._process.send_signal(number)

    def end_by(self, deadline_s: float) -> bool:
        """Waits for its end until `deadline_s` (monotonic), then kills it. True if it ended by itself."""
        if self._process is None:
            return True
        try:
            self._process.wait(max(0.0, deadline_s - time.monotonic()))
            return True
        except subprocess.TimeoutExpired:
            self.send_signal(signal.SIGKILL)
            self._process.wait()
            return False

    def close(self) -> None:
        """Closes our end of its standard output."""
        if self._process and self._process.stdout:
            self._process.stdout.close()


def _open_privately(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def keep_running(
    process: SupervisedProcess,
    launch: Callable[[], bool],
    wait_until_ready: Callable[[], object],
    stopping: threading.Event,
    decide: Decide = decide_restart,
) -> GiveUp | None:
    """Starts a process again whenever it ends; returns why it gave that up, or None when it is to end.

    `launch` says whether it may be started still, and `wait_until_ready` raises UnavailableError for one
    that doesn't come up: that counts as an end.
    """
    ends_s: list[float] = []
    while True:
        exit_code = process.wait()
        if stopping.is_set():
            return None
        ends_s.append(time.monotonic())
        decision = decide(ends_s, ends_s[-1], exit_code)
        if isinstance(decision, GiveUp):
            return decision
        if stopping.wait(decision.delay_s) or not launch():
            return None
        try:
            wait_until_ready()
        except UnavailableError:
            process.send_signal(signal.SIGKILL)  # it ended, or hangs: either way the next round counts it


def end_together(running: Sequence[SupervisedProcess], limit_s: float) -> None:
    """Asks all to end, and kills those that have not after `limit_s` seconds."""
    for one in running:
        one.send_signal(signal.SIGTERM)
    deadline_s = time.monotonic() + limit_s
    for one in running:
        one.end_by(deadline_s)


def last_error(log: Path) -> str:
    """The last line of a log that begins with "error: ", without that; empty when there is none."""
    try:
        lines = log.read_text(errors="replace").splitlines()
    except OSError:
        return ""
    told = [line.removeprefix("error: ") for line in lines[-50:] if line.startswith("error: ")]
    return told[-1] if told else ""


def _last_line(log: Path) -> str:
    try:
        lines = log.read_text(errors="replace").splitlines()
    except OSError:
        return ""
    return lines[-1][:300] if lines else ""
