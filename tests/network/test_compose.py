"""The deployment as a user gets it: the built images, the compose files, one job, and state that survives."""

import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import docker
import pytest
import yaml
from compose_stack import DEPLOY, IMAGES, Stack, require_compose, require_docker, wait_until

from peerloom import Client

pytestmark = [pytest.mark.network, pytest.mark.timeout(300)]
USER = "10001:10001"
# What the current compose specification has for a service, as far as these files use it.
SERVICE_KEYS = {
    "cap_drop", "depends_on", "deploy", "environment", "healthcheck", "image", "init", "logging", "mem_limit",
    "network_mode", "networks", "pids_limit", "ports", "pull_policy", "read_only", "restart",
    "security_opt", "shm_size", "stop_grace_period", "tmpfs", "ulimits", "volumes",
}  # fmt: skip


@pytest.fixture(scope="module")
def engine() -> Iterator[docker.DockerClient]:
    """The Docker daemon, with the images in it."""
    engine = require_docker()
    yield engine
    engine.close()


@pytest.fixture(scope="module")
def stack(engine: docker.DockerClient) -> Iterator[Stack]:
    """The stack with three nodes. The tests share it, in their order, as it takes ten seconds to come up."""
    stack = Stack(engine, require_compose())
    try:
        stack.up(nodes=3)
        yield stack
    finally:
        stack.remove()


def in_image(engine: docker.DockerClient, name: str, *command: str) -> str:
    """What a command prints inside a fresh container of the image."""
    output: bytes = engine.containers.run(
        f"peerloom-{name}", list(command[1:]), entrypoint=command[0], network_mode="none", remove=True
    )
    return output.decode().strip()


@pytest.mark.parametrize("files", [("compose.yaml",), ("compose.yaml", "compose.gpu.yaml")])
def test_the_installed_compose_accepts_the_files(files: tuple[str, ...]) -> None:
    """docker-compose checks them against its own schema, whichever version is installed."""
    flags = [part for file in files for part in ("-f", str(DEPLOY / file))]
    done = subprocess.run([*require_compose(), *flags, "config", "--quiet"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "WARN" not in done.stderr.upper()


@pytest.mark.parametrize("path", sorted(DEPLOY.glob("compose*.yaml")), ids=lambda path: path.name)
def test_the_files_say_only_what_compose_2_understands_too(path: Path) -> None:
    """No version key, which it calls obsolete; no fixed names, which forbid scaling; text for text."""
    document = yaml.safe_load(path.read_text())
    assert {key for key in document if not key.startswith("x-")} <= {"services", "networks", "volumes"}
    for name, service in document["services"].items():
        assert set(service) <= SERVICE_KEYS, name
        assert all(isinstance(value, str) for value in service.get("environment", {}).values()), name
        assert all(isinstance(port, str) for port in service.get("ports", ())), name


@pytest.mark.parametrize("name", ["registry", "selector", "trainer"])
def test_the_light_images_have_no_torch(engine: docker.DockerClient, name: str) -> None:
    program = "from importlib.util import find_spec; print(find_spec('torch'), find_spec('sklearn'))"
    assert in_image(engine, name, "python", "-c", program) == "None None"
    light, heavy = (engine.images.get(f"peerloom-{each}").attrs["Size"] for each in (name, "node"))
    assert light < heavy / 2


@pytest.mark.parametrize("name", IMAGES)
def test_an_image_has_an_ordinary_user_and_nothing_to_build_with(
    engine: docker.DockerClient, name: str
) -> None:
    tools = "gcc cc g++ make cmake pip pip3 git"
    found = in_image(
        engine, name, "sh", "-c", f"id -u; id -g; command -v {tools} || true; ls /wheels 2>/dev/null || true"
    )
    assert found.split() == ["10001", "10001"]
    assert engine.images.get(f"peerloom-{name}").attrs["Config"]["User"] == USER


def test_only_the_clients_port_is_published_and_on_loopback(stack: Stack) -> None:
    published: dict[str, Any] = {}
    for container in stack.containers():
        for port, bindings in container.attrs["HostConfig"]["PortBindings"].items():
            published[port] = [f"{each['HostIp']}:{each['HostPort']}" for each in bindings]
    assert published == {"7400/tcp": [stack.address]}


def test_every_container_is_contained(stack: Stack) -> None:
    """Read-only root, no capabilities, no way to gain any, and bounds on memory and processes."""
    containers = stack.containers()
    assert len(containers) == 6
    for container in containers:
        limits = container.attrs["HostConfig"]
        assert limits["ReadonlyRootfs"], container.name
        assert limits["CapDrop"] == ["ALL"], container.name
        assert "no-new-privileges:true" in limits["SecurityOpt"], container.name
        assert limits["Memory"] > 0, container.name
        assert limits["PidsLimit"] > 0, container.name
        assert limits["RestartPolicy"]["Name"] == "unless-stopped", container.name
        status = container.exec_run(
            ["sh", "-c", "grep -E 'CapEff|NoNewPrivs|^Uid' /proc/1/status"]
        ).output.decode()
        assert status.split()[1:] == ["10001"] * 4 + ["CapEff:", "0" * 16, "NoNewPrivs:", "1"], container.name


def test_a_job_from_outside_trains_and_its_model_comes_out(stack: Stack, tmp_path: Path) -> None:
    """The client knows one address; a task out of the mounted folder works as well as a built-in one."""
    with Client(stack.address) as client:
        result = client.train("digits", requests=3, epochs=2).result(120).raise_for_state()
        assert result.metric is not None
        assert result.metric > 0.8
        model = client.fetch_model(result.job_id, tmp_path / "digits.safetensors")
        assert model.stat().st_size > 1000
        own = client.train("my_task:Rings", requests=1, epochs=1).result(120)
        assert own.succeeded, own.reason


def test_a_crash_of_every_service_at_once_loses_nothing(stack: Stack) -> None:
    """All processes are killed; Docker starts them again; nodes, beliefs, jobs and models are as before."""
    wait_until(lambda: told_of_trainings(stack))
    before, restarts = remembered(stack), stack.restarts()
    stack.kill_all()
    # Docker may take a moment to see that a container has ended: until then it still counts as healthy.
    wait_until(lambda: ", ".join(n for n, count in stack.restarts().items() if count <= restarts[n]))
    stack.wait_until_ready(nodes=3)
    assert remembered(stack) == before


def test_down_and_up_keep_the_state(stack: Stack, tmp_path: Path) -> None:
    """The containers are new ones; what they know is what the old knew, and the next job adds to it."""
    before = remembered(stack)
    stack.compose("down", "--timeout", "20")
    assert stack.containers() == []
    stack.up(nodes=3)
    assert remembered(stack) == before
    with Client(stack.address) as client:
        first = client.jobs()[-1]
        assert client.fetch_model(first.id, tmp_path / "model").stat().st_size > 1000
        trained = sum(trainings(client).values())
        client.train("digits", requests=3, epochs=1).result(120).raise_for_state()
        wait_until(lambda: "" if sum(trainings(client).values()) > trained else "no training was counted")


def test_down_with_volumes_leaves_nothing(stack: Stack) -> None:
    assert stack.left() != []
    stack.remove()
    assert stack.left() == []


def remembered(stack: Stack) -> dict[str, Any]:
    """What must survive: who the nodes are, what is believed of them from trainings, which jobs ended how."""
    with Client(stack.address) as client:
        return {
            "nodes": {node.name: (node.id, node.slots) for node in client.nodes(states=("alive",))},
            "trained": trainings(client),
            "jobs": {job.id: (job.state, job.result and job.result.metric) for job in client.jobs()},
            "models": {(model.job_id, model.digest) for model in client.models()},
        }


def told_of_trainings(stack: Stack) -> str:
    """What the selector hasn't heard of yet; "" when each node of each finished job has its evidence."""
    with Client(stack.address) as client:
        expected = sum(job.spec.requests or 1 for job in client.jobs() if job.state == "succeeded")
        found = sum(trainings(client).values())
    return "" if found >= expected else f"{found} of {expected} trainings are evidence"


def trainings(client: Client) -> dict[str, int]:
    """How many trainings each node has finished, by the highest count in its belief's history."""
    return {
        belief.name: max(past.terms.trainings for past in client.belief_history(belief.node_id) if past.terms)
        for belief in client.beliefs()
        if belief.terms
    }
