"""The dashboard beside a system: the system goes on without it."""

import signal
import socket
import sys
from collections.abc import Sequence
from pathlib import Path

from peerloom.embedded.process import SupervisedProcess
from peerloom.errors import UnavailableError

USUAL_PORT = 8080


class DashboardProcess(SupervisedProcess):
    """`peerloom dashboard` at port 8080 of loopback, or a free one where that is taken; at `url` once ready.

    `url` is empty where it didn't come up. It is started again when it ends, at its old address, until that
    is hopeless; its log says why.
    """

    def __init__(self, log: Path) -> None:
        super().__init__("dashboard", log, says="http://")
        self.url = ""

    def launch(self, registry: str, lifeline: int, inherited: Sequence[int]) -> None:
        """Starts the process; `lifeline` is the read end of the pipe that ends it with its starter."""
        where = self.url.removeprefix("http://").rstrip("/") or f"127.0.0.1:{_port()}"
        command = [sys.executable, "-m", "peerloom.cli", "dashboard", "--address", registry]
        # An identity in the environment is for another system: this one is plain.
        self.start([*command, "--listen", where], lifeline, inherited, {"PEERLOOM_IDENTITY": ""})

    def wait_for_url(self) -> None:
        """Waits until it can be looked at, or until it is clear that it can't."""
        try:
            self.url = f"http://{self.wait_until_ready()}"
        except UnavailableError:
            self.send_signal(signal.SIGKILL)  # it ended, or hangs: either way it is started again


def _port() -> int:
    """8080, or 0 where somebody listens there."""
    try:
        with socket.create_server(("127.0.0.1", USUAL_PORT)):
            return USUAL_PORT
    except OSError:
        return 0
