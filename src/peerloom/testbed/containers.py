"""Hosts as Docker containers, with nothing of Docker's own network.

Each host is two containers. The anchor only sleeps: it holds the network, which is wired before the agent
starts and stays when the agent is started again. The agent's container joins the anchor's network, without
capabilities or new privileges, on a read-only root, within limits of memory and processes.
"""

import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import docker
from docker.errors import APIError, DockerException, ImageNotFound, NotFound
from docker.types import DeviceRequest

from peerloom.errors import FailedPreconditionError, UnavailableError
from peerloom.testbed.names import Names
from peerloom.testbed.plan import ContainerPlan, Host

_LABEL = "peerloom.testbed"
_ANSWER_LIMIT_S = 60
_STATE = "/var/lib/peerloom"
_USER = 65534  # nobody: owns nothing on the machine
_ANCHOR = ("import signal", "signal.sigwait({signal.SIGTERM, signal.SIGINT})")
_LOCKED_DOWN: dict[str, Any] = {
    "cap_drop": ["ALL"],
    "security_opt": ["no-new-privileges"],
    "read_only": True,
    "user": f"{_USER}:{_USER}",
}


def _unreachable(error: DockerException) -> UnavailableError:
    return UnavailableError(
        f"Docker doesn't answer ({error}). Start it, and see that this user may use its socket.",
        reason="DOCKER_UNREACHABLE",
    )


class Engine:
    """A line to Docker; a context manager that closes it. Raises UnavailableError when none answers."""

    def __init__(self) -> None:
        try:
            self._client = docker.from_env(timeout=_ANSWER_LIMIT_S)
        except DockerException as error:
            raise _unreachable(error) from error

    def __enter__(self) -> "Engine":
        return self

    def __exit__(self, *_: object) -> None:
        self._client.close()

    def has_image(self, image: str) -> bool:
        """Whether the image is on this machine; nothing is fetched."""
        try:
            self._client.images.get(image)
        except ImageNotFound:
            return False
        except DockerException as error:
            raise _unreachable(error) from error
        return True

    def start_anchor(self, its: Names, host: Host, limits: ContainerPlan) -> int:
        """Starts the container that holds a host's network; the pid of its process."""
        container = self._run(
            limits,
            name=its.anchor(host.name),
            hostname=host.name,
            command=["-I", "-S", "-c", "; ".join(_ANCHOR)],
            network_mode="none",
            mem_limit="64m",
            pids_limit=16,
            labels={_LABEL: its.token},
        )
        container.reload()
        pid = int(container.attrs["State"]["Pid"])
        if not pid:
            raise self._ended(container, host.name)
        return pid

    def start_agent(
        self, its: Names, host: Host, limits: ContainerPlan, arguments: Sequence[str], state: Path
    ) -> None:
        """Starts a host's agent in its anchor's network; `state` is its folder on this machine."""
        state.mkdir(parents=True, exist_ok=True)
        _give_to_user(state)
        self._run(
            limits,
            name=its.container(host.name),
            command=["-m", "peerloom.services.node_agent", *arguments],
            network_mode=f"container:{its.anchor(host.name)}",
            mem_limit=limits.memory_bytes,
            memswap_limit=limits.memory_bytes,
            pids_limit=limits.pids,
            tmpfs={"/tmp": "rw,nosuid,nodev,size=512m,mode=1777"},
            shm_size="256m",
            extra_volumes={str(state): {"bind": _STATE, "mode": "rw"}},
            environment={"HOME": "/tmp", "USER": "peerloom", "LOGNAME": "peerloom", **limits.environment},
            device_requests=_gpus(limits.gpus),
            restart_policy={"Name": "on-failure", "MaximumRetryCount": 5},
            labels={_LABEL: its.token},
        )

    def log(self, name: str) -> str:
        """What a container wrote, its last 5000 lines; empty when there is none."""
        with suppress(DockerException):
            return str(self._client.containers.get(name).logs(tail=5000).decode(errors="replace"))
        return ""

    def is_running(self, name: str) -> bool:
        """Whether a container's program runs, or is being started again."""
        with suppress(NotFound):
            return str(self._client.containers.get(name).status) in ("running", "restarting", "created")
        return False

    def stop(self, names: Sequence[str], grace_s: float) -> None:
        """Asks programs to end, and kills those that have not after `grace_s` seconds."""
        found = []
        for name in names:
            with suppress(NotFound, APIError):
                container = self._client.containers.get(name)
                container.kill("SIGTERM")
                found.append(container)
        for container in found:
            with suppress(DockerException):
                container.stop(timeout=max(1, round(grace_s)))

    def remove(self, names: Sequence[str]) -> int:
        """Removes containers, running or not; returns how many there were."""
        count = 0
        for name in names:
            try:
                self._client.containers.get(name).remove(force=True, v=True)
                count += 1
            except NotFound:
                continue
            except DockerException as error:
                raise UnavailableError(f"Docker can't remove {name} ({error}); try again.") from error
        return count

    def _run(self, limits: ContainerPlan, extra_volumes: dict[str, Any] | None = None, **what: Any) -> Any:
        volumes = {here: {"bind": there, "mode": "ro"} for here, there in limits.mounts}
        try:
            return self._client.containers.run(
                limits.image,
                entrypoint=[limits.python],
                detach=True,
                volumes={**volumes, **(extra_volumes or {})},
                **_LOCKED_DOWN,
                **what,
            )
        except DockerException as error:
            raise FailedPreconditionError(
                f"Docker can't start {what['name']}: {error}", reason="CONTAINER_REFUSED"
            ) from error

    def _ended(self, container: Any, host: str) -> FailedPreconditionError:
        text = container.logs().decode(errors="replace").strip()[-300:]
        return FailedPreconditionError(
            f"The container of {host} ended at once: {text or 'it said nothing'}. Is containers.python right?"
        )


def state_in_container() -> str:
    """The state folder as the agent in the container sees it."""
    return _STATE


def _give_to_user(folder: Path) -> None:
    for path in (folder, *folder.rglob("*")):
        os.chown(path, _USER, _USER, follow_symlinks=False)


def _gpus(count: int) -> list[Any]:
    return [DeviceRequest(count=count, capabilities=[["gpu"]])] if count else []
