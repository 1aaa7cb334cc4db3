"""Drives the stack of deploy/compose.yaml under a project name of its own, as a user would."""

import asyncio
import gc
import os
import secrets
import shutil
import socket
import subprocess
import tempfile
import threading
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import docker
import pytest
from docker.errors import DockerException

from peerloom import Client
from peerloom.admission.join_string import JoinString
from peerloom.admission.joining import join_by_token
from peerloom.errors import PeerloomError
from peerloom.kit.identity import Identity

DEPLOY = Path(__file__).parents[2] / "deploy"
IMAGES = ("registry", "selector", "trainer", "node")
TAG = os.environ.get("TAG", "latest")  # of the images; compose reads the same variable
COMMAND_LIMIT_S = 240
READY_LIMIT_S = 120.0
# Ends every process of a container but its init, as SIGKILL from outside would: nobody can say goodbye.
KILL_ALL = (
    "import os, signal\n"
    "for name in os.listdir('/proc'):\n"
    "    if name.isdigit() and int(name) not in (1, os.getpid()):\n"
    "        os.kill(int(name), signal.SIGKILL)\n"
)


def require_daemon() -> docker.DockerClient:
    """A client of the daemon, or a skip that says how it doesn't answer."""
    with warnings.catch_warnings():
        # Where no daemon listens, Docker's package drops its socket without closing it.
        warnings.simplefilter("ignore", ResourceWarning)
        try:
            return docker.from_env(timeout=COMMAND_LIMIT_S)
        except DockerException as error:
            found = str(error)
        gc.collect()
    pytest.skip(f"needs Docker: {found}")


def require_docker() -> docker.DockerClient:
    """A client of the daemon with the images in it, or a skip that says what is missing."""
    engine = require_daemon()
    missing = [name for name in IMAGES if not engine.images.list(f"peerloom-{name}:{TAG}")]
    if missing:
        engine.close()
        pytest.skip(f"needs Docker with Peerloom's images ({', '.join(missing)} missing): run make images")
    return engine


def require_compose() -> list[str]:
    """The command of Compose v2, or of docker-compose, or a skip."""
    if (
        shutil.which("docker")
        and not subprocess.run(["docker", "compose", "version"], capture_output=True).returncode
    ):
        return ["docker", "compose"]
    if shutil.which("docker-compose"):
        return ["docker-compose"]
    pytest.skip("needs Docker's compose: install docker-compose")


def free_ports() -> tuple[int, int]:
    """Two ports of loopback that were free a moment ago."""
    with socket.create_server(("127.0.0.1", 0)) as one, socket.create_server(("127.0.0.1", 0)) as other:
        return int(one.getsockname()[1]), int(other.getsockname()[1])


class Stack:
    """One project; its commands raise AssertionError with what compose said when they fail."""

    def __init__(
        self, engine: docker.DockerClient, compose: list[str], files: tuple[str, ...] = ("compose.yaml",)
    ) -> None:
        self.engine = engine
        self.project = f"peerloom-test-{secrets.token_hex(4)}"
        self.port, self.join_port = free_ports()
        self.address = f"127.0.0.1:{self.port}"
        self._login = ""
        self._command = [*compose, *(part for file in files for part in ("-f", str(DEPLOY / file)))]

    def compose(self, *arguments: str, check: bool = True) -> str:
        """Runs one compose command; returns what it printed."""
        environment = {
            **os.environ,
            "COMPOSE_PROJECT_NAME": self.project,
            "CLIENT_PORT": str(self.port),
            "JOIN_PORT": str(self.join_port),
            "COMPOSE_HTTP_TIMEOUT": str(COMMAND_LIMIT_S),
        }
        done = subprocess.run(
            [*self._command, *arguments],
            env=environment,
            capture_output=True,
            text=True,
            timeout=COMMAND_LIMIT_S,
        )
        assert not check or done.returncode == 0, f"{arguments}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    def token(self, *more: str) -> str:
        """What `peerloom token create --role user` prints in the registry's container."""
        command = ("exec", "-T", "registry", "peerloom", "token", "create", "--role", "user", *more)
        return self.compose(*command).strip()

    def identity(self) -> Identity:
        """That of somebody who joined by a token, at the first call."""
        self._login = self._login or tempfile.mkdtemp()
        path = Path(self._login, "identity.pem")
        if not path.exists():
            assert asyncio.run(join_by_token(JoinString.parse(self.token()), path)) == self.address
        return Identity(path)

    def client(self, patience_s: float = 60.0) -> Client:
        """A client of theirs."""
        return Client(self.address, identity=str(self.identity().path), patience_s=patience_s)

    def up(self, nodes: int) -> None:
        """Starts everything and waits until all is healthy and all nodes are alive."""
        self.compose("up", "--detach", "--scale", f"node={nodes}")
        self.wait_until_ready(nodes)

    def wait_until_ready(self, nodes: int) -> None:
        """Waits until each container is healthy and `nodes` nodes are alive in the registry."""
        with self.client(READY_LIMIT_S) as client:

            def missing() -> str:
                states = {each.name: each.attrs["State"]["Health"]["Status"] for each in self.containers()}
                ill = {name: state for name, state in states.items() if state != "healthy"}
                try:
                    alive = [node.name for node in client.nodes(states=("alive",))]
                    away = [service.name for service in client.services() if not service.healthy]
                except PeerloomError as error:
                    return error.message
                return (
                    "" if not ill and not away and len(alive) == nodes else f"{ill}, {away}, alive: {alive}"
                )

            wait_until(missing)

    def containers(self) -> list[Any]:
        """The project's containers, also those that have stopped."""
        return list(self.engine.containers.list(all=True, filters={"label": self._label()}))

    def kill_all(self) -> None:
        """Ends every process of every container at once; the restart policy has to bring them back."""
        for container in self.containers():
            container.exec_run(["python", "-c", KILL_ALL])

    def restarts(self) -> dict[str, int]:
        """How often Docker has started each container again."""
        return {each.name: int(each.attrs["RestartCount"]) for each in self.containers()}

    def left(self) -> list[str]:
        """What of the project is still there: containers, networks and volumes."""
        kinds = (self.engine.networks, self.engine.volumes)
        found = [each for kind in kinds for each in kind.list(filters={"label": self._label()})]
        return [str(each.name) for each in (*self.containers(), *found)]

    def remove(self) -> None:
        """Takes away everything of the project, its volumes and our login too."""
        if self._login:
            shutil.rmtree(self._login)
            self._login = ""
        self.compose("down", "--volumes", "--remove-orphans", "--timeout", "10", check=False)

    def _label(self) -> str:
        return f"com.docker.compose.project={self.project}"


def wait_until(missing: Callable[[], str], limit_s: float = READY_LIMIT_S) -> None:
    """Asks four times a second until nothing is missing; Docker has no call that waits for health."""
    deadline_s, pause = time.monotonic() + limit_s, threading.Event()
    while what := missing():
        assert time.monotonic() < deadline_s, f"not ready within {limit_s:g} s: {what}"
        pause.wait(0.25)
