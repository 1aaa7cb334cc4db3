"""A tracking server of MLflow as a process, at one port however often it is killed."""

import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Self

# What `mlflow server` tells its processes by; it has no way to hand them a socket.
_RUNS, _ARTIFACTS = "_MLFLOW_SERVER_FILE_STORE", "_MLFLOW_SERVER_ARTIFACT_ROOT"


class MlflowServer:
    """The application that `mlflow server` starts, with its runs in files; use it as a context manager.

    It is started on a socket that listens already, so a request may follow at once.
    """

    def __init__(self, folder: Path) -> None:
        self._environment = {
            **os.environ,
            _RUNS: f"file://{folder}/runs",
            _ARTIFACTS: str(folder / "artifacts"),
            "MLFLOW_ALLOW_FILE_STORE": "true",  # a database's tables take seconds to make
            "MLFLOW_DISABLE_TELEMETRY": "true",
        }
        self._held = _bound(0)  # never listens: it keeps the port ours while the server is dead
        self._port = int(self._held.getsockname()[1])
        self.uri = f"http://127.0.0.1:{self._port}"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Returns at once: requests wait until it serves, some seconds later."""
        with _bound(self._port) as listener:
            listener.listen()
            serve = ["uvicorn", "mlflow.server.fastapi_app:app", "--fd", str(listener.fileno())]
            self._process = subprocess.Popen(
                [sys.executable, "-m", *serve, "--log-level", "error"],
                env=self._environment,
                pass_fds=[listener.fileno()],
            )

    def kill(self) -> None:
        """By SIGKILL; its port refuses connections then."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()
        self._held.close()


def _bound(port: int) -> socket.socket:
    made = socket.socket()
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    made.bind(("127.0.0.1", port))
    return made
