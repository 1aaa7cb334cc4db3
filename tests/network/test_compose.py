"""The deployment as a user gets it: the built images, the compose files, one job, and state that survives."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import docker
import grpc
import pytest
import yaml
from compose_stack import DEPLOY, IMAGES, TAG, Stack, require_compose, wait_until
from grpc_health.v1.health_pb2 import HealthCheckRequest
from grpc_health.v1.health_pb2_grpc import HealthStub

from peerloom import Client
from peerloom.errors import UnavailableError

pytestmark = [pytest.mark.network, pytest.mark.timeout(300)]
USER = "10001:10001"
# What the current compose specification has for a service, as far as these files use it.
SERVICE_KEYS = {
    "cap_drop", "depends_on", "deploy", "environment", "healthcheck", "image", "init", "logging", "mem_limit",
    "network_mode", "networks", "pids_limit", "ports", "pull_policy", "read_only", "restart",
    "security_opt", "shm_size", "stop_grace_period", "sysctls", "tmpfs", "ulimits", "volumes",
}  # fmt: skip


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
        f"peerloom-{name}:{TAG}", list(command[1:]), entrypoint=command[0], network_mode="none", remove=True
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


@pytest.mark.parametrize("name", ["registry", "selector"])
def test_the_light_images_have_no_torch(engine: docker.DockerClient, name: str) -> None:
    program = "from importlib.util import find_spec; print(find_spec('torch'), find_spec('sklearn'))"
    assert in_image(engine, name, "python", "-c", program) == "None None"
    light, heavy = (engine.images.get(f"peerloom-{each}:{TAG}").attrs["Size"] for each in (name, "node"))
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
    assert engine.images.get(f"peerloom-{name}:{TAG}").attrs["Config"]["User"] == USER


def test_only_the_clients_ports_are_published_and_on_loopback(stack: Stack) -> None:
    published: dict[str, Any] = {}
    for container in stack.containers():
        for port, bindings in container.attrs["HostConfig"]["PortBindings"].items():
            published[port] = [f"{each['HostIp']}:{each['HostPort']}" for each in bindings]
    ports = (stack.port, stack.join_port)
    assert published == {f"{port}/tcp": [f"127.0.0.1:{port}"] for port in ports}


def test_a_fresh_stack_admits_nobody_without_a_token_which_works_once(
    stack: Stack, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither who speaks in plain, nor who speaks TLS and has no certificate; and then as the README says."""
    with Client(stack.address, patience_s=1) as stranger, pytest.raises(UnavailableError):
        stranger.nodes()
    known = stack.identity()
    nameless = grpc.ssl_channel_credentials(known.current.authorities)
    assert answer_to(stack, known.channel_credentials()) is grpc.StatusCode.OK
    assert answer_to(stack, nameless) is grpc.StatusCode.UNAVAILABLE

    def peerloom(*words: str) -> "subprocess.CompletedProcess[str]":
        command = [sys.executable, "-m", "peerloom.cli", *words]
        return subprocess.run(command, capture_output=True, text=True, timeout=60)

    monkeypatch.setenv("PEERLOOM_STATE", str(tmp_path))
    token = stack.token("--owner", "ada")
    assert peerloom("login", token).returncode == 0
    listed = peerloom("nodes", "list", "-o", "json")
    assert listed.returncode == 0, listed.stderr
    assert {node["name"] for node in json.loads(listed.stdout)} == {"node-1", "node-2", "node-3"}
    again = peerloom("login", token)
    assert (again.returncode, "a token works once" in again.stderr) == (2, True), again.stderr
    assert "belongs to registry" in peerloom("nodes", "drain", "node-1").stderr


def answer_to(stack: Stack, credentials: grpc.ChannelCredentials) -> grpc.StatusCode:
    """What a caller gets that knows the authority, and insists on no more than the registry's name."""
    name = [("grpc.ssl_target_name_override", "registry.peerloom")]
    with grpc.secure_channel(stack.address, credentials, name) as channel:
        try:
            HealthStub(channel).Check(HealthCheckRequest(), timeout=10)
        except grpc.RpcError as error:
            code: grpc.StatusCode = error.code()  # type: ignore[attr-defined]  # it is a call too
            return code
    return grpc.StatusCode.OK


def test_a_container_reaches_the_doorkeeper_for_its_own_role_only(stack: Stack) -> None:
    doors = {}
    for container in stack.containers():
        found = {mount["Name"].rpartition("_")[2] for mount in container.attrs["Mounts"] if "Name" in mount}
        service = container.labels["com.docker.compose.service"]
        doors[service] = {name for name in found if name.startswith("door-")}
    assert doors.pop("registry") == {"door-selector", "door-trainer", "door-node"}
    assert doors == {name: {f"door-{name}"} for name in ("selector", "trainer", "node")}


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
        assert limits["Sysctls"] == {"net.ipv4.tcp_slow_start_after_idle": "0"}, container.name
        # From outside: what docker exec prints is lost now and then (docker-py's issues 2042 and 3332).
        lines = Path(f"/proc/{container.attrs['State']['Pid']}/status").read_text().splitlines()
        status = dict(line.split(":", 1) for line in lines)
        assert status["Uid"].split() == ["10001"] * 4, container.name
        assert (status["CapEff"].strip(), status["NoNewPrivs"].strip()) == ("0" * 16, "1"), container.name


def test_a_job_from_outside_trains_and_its_model_comes_out(stack: Stack, tmp_path: Path) -> None:
    """The client knows one address; a task out of the mounted folder works as well as a built-in one."""
    with stack.client() as client:
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
    with stack.client() as client:
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
    """What must survive: who the nodes are and that nobody joined anew, beliefs, and which jobs ended how."""
    with stack.client() as client:
        return {
            "nodes": {node.name: (node.id, node.slots) for node in client.nodes(states=("alive",))},
            "admitted": {each.uri: each.joined_time for each in client.door.admitted()},
            "trained": trainings(client),
            "jobs": {job.id: (job.state, job.result and job.result.metric) for job in client.jobs()},
            "models": {(model.job_id, model.digest) for model in client.models()},
        }


def told_of_trainings(stack: Stack) -> str:
    """What the selector hasn't heard of yet; "" when each node of each finished job has its evidence."""
    with stack.client() as client:
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
