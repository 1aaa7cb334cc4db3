"""Real service processes: started on a free port, found by the one line they print, killed at teardown."""

import itertools
import os
import select
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Browser

START_LIMIT_S = 60.0  # the first of a side waits until the origin has imported all
STOP_LIMIT_S = 30.0
PAGE_LIMIT_MS = 90_000.0
DEAF_BROWSER = Path(__file__).with_name("deaf_browser.py")


class ServiceHandle:
    """One running service: `address` host:port, `process`, and `log_path` with what it wrote to stderr.

    `inside` is the network namespace that it runs in ("": ours).
    """

    def __init__(
        self, name: str, arguments: list[str], environment: dict[str, str], log_path: Path, inside: str = ""
    ) -> None:
        self.name = name
        self.log_path = log_path
        entering = ["ip", "netns", "exec", inside] if inside else []
        command = [*entering, sys.executable, "-m", f"peerloom.services.{name}", *arguments]
        if "--listen" not in arguments:
            command += ["--listen", "127.0.0.1:0"]
        with log_path.open("wb") as log:
            self.process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                env={**os.environ, **environment},
            )
        self.address = self._read_address()

    def kill(self) -> None:
        """SIGKILL, as a power cut would; returns once the process is gone."""
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(STOP_LIMIT_S)

    def stop(self) -> int:
        """SIGTERM; returns the exit status of the graceful stop."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        return self.process.wait(STOP_LIMIT_S)

    def log(self) -> str:
        """All that it wrote to stderr until now."""
        return self.log_path.read_text(errors="replace")

    def _read_address(self) -> str:
        assert self.process.stdout is not None
        deadline = time.monotonic() + START_LIMIT_S
        line = b""
        while not line.endswith(b"\n"):
            ready, _, _ = select.select([self.process.stdout], [], [], max(0.0, deadline - time.monotonic()))
            piece = os.read(self.process.stdout.fileno(), 4096) if ready else b""
            if not piece:
                self._give_up("ended" if ready else f"said nothing within {START_LIMIT_S:.0f} s")
            line += piece
        text = line.decode().strip()
        assert text.startswith("address="), f"{self.name} wrote {text!r} instead of its address"
        return text.removeprefix("address=")

    def _give_up(self, what: str) -> None:
        self.kill()
        self.close()
        status = self.process.returncode
        pytest.fail(f"{self.name} {what} before its address line (status {status}):\n{self.log()}")

    def close(self) -> None:
        """Closes our end of its output."""
        if self.process.stdout is not None:
            self.process.stdout.close()


StartService = Callable[..., ServiceHandle]


@pytest.fixture
def opened() -> Iterator[ExitStack]:
    """What a test leaves to be closed when it is over."""
    with ExitStack() as stack:
        yield stack


@pytest.fixture
def start_service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StartService]:
    """Starts `python -m peerloom.services.NAME ARGUMENTS` with the keyword arguments as environment."""
    folder = tmp_path_factory.mktemp("logs")
    numbers = itertools.count(1)
    started: list[ServiceHandle] = []

    def start(name: str, *arguments: str, inside: str = "", **environment: str) -> ServiceHandle:
        log_path = folder / f"{name}-{next(numbers)}.log"
        handle = ServiceHandle(name, list(arguments), environment, log_path, inside)
        started.append(handle)
        return handle

    yield start
    for handle in reversed(started):
        handle.kill()
        handle.close()


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator["Browser"]:
    """Debian's Chromium, without a screen; what is expected of a page may take as long as all else."""
    from playwright.sync_api import expect, sync_playwright

    if (program := shutil.which("chromium")) is None:
        pytest.skip("needs Chromium: apt-get install chromium")
    expect.set_options(timeout=PAGE_LIMIT_MS)  # 5 s otherwise: the first page on a busy machine takes longer
    start = tmp_path_factory.mktemp("browser") / "start"
    start.write_text(f'#!/bin/sh\nexec "{sys.executable}" "{DEAF_BROWSER}" "{program}" "$@"\n')
    start.chmod(0o700)
    with sync_playwright() as playwright:
        found = playwright.chromium.launch(executable_path=start)
        yield found
        found.close()
