"""The small programs inside the images: which node a container becomes, how it gets in, its health check."""

import asyncio
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from door_system import DoorSystem
from node_agent_parts import StartService

from peerloom.admission.certificates import Authority, make_request
from peerloom.admission.joining import enter
from peerloom.kit.clock import SystemClock
from peerloom.kit.identity import Credentials, Identity, write_identity
from peerloom.kit.principal import Principal, Role
from peerloom.kit.server import LIVE, Endpoint, Server

DEPLOY = Path(__file__).parents[2] / "deploy"
CLAIM = (
    "import sys; sys.path.insert(0, {folder!r})\n"
    "from pathlib import Path; from start import settle\n"
    "environment = {{}}; settle('node', environment)\n"
    "print(environment['PEERLOOM_NODE_STATE'], environment['PEERLOOM_NODE_NAME'], flush=True)\n"
    "sys.stdin.read()\n"
)


@contextmanager
def replica(volume: Path) -> Iterator[tuple[subprocess.Popen[str], list[str]]]:
    """A process that has claimed a node's folder, as a container does, and holds it until it ends."""
    process = subprocess.Popen(
        [sys.executable, "-c", CLAIM.format(folder=str(DEPLOY))],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "HOME": str(volume)},
    )
    with process:
        assert process.stdout is not None
        yield process, process.stdout.readline().split()


def test_replicas_of_one_volume_become_different_nodes(tmp_path: Path) -> None:
    with replica(tmp_path) as (_, first), replica(tmp_path) as (_, second):
        assert first == [str(tmp_path / "node-1"), "node-1"]
        assert second == [str(tmp_path / "node-2"), "node-2"]


def test_a_replacement_becomes_the_node_that_was_killed(tmp_path: Path) -> None:
    with replica(tmp_path) as (killed, _), replica(tmp_path):
        killed.send_signal(signal.SIGKILL)
        killed.wait()
        with replica(tmp_path) as (_, replacement):
            assert replacement[1] == "node-1"


def test_the_claim_is_held_by_what_the_program_becomes(tmp_path: Path) -> None:
    """exec keeps the lock: a second claim from another process finds the first folder taken."""
    program = CLAIM.format(folder=str(DEPLOY)).replace(
        "sys.stdin.read()", "import os; os.execv('/bin/cat', ['cat'])"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", program],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "HOME": str(tmp_path)},
    )
    with process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdout.readline()
        process.stdin.write("cat is there\n")
        process.stdin.flush()
        assert process.stdout.readline() == "cat is there\n"
        with replica(tmp_path) as (_, second):
            assert second[1] == "node-2"


def test_an_unknown_service_is_named(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, DEPLOY / "start.py", "nodes"], capture_output=True, text=True)
    assert done.returncode == 1
    assert done.stderr == "error: say which service to start: registry, selector, trainer, node\n"


@pytest.fixture
def doors() -> Iterator[Path]:
    """A folder with a door for each role; its path is short, since a socket's has 107 characters at most."""
    with tempfile.TemporaryDirectory(prefix="door") as folder:
        for role in ("selector", "trainer", "node"):
            Path(folder, role).mkdir()
        yield Path(folder)


@contextmanager
def doorkeeper(system: DoorSystem, doors: Path) -> Iterator["subprocess.Popen[bytes]"]:
    """The doorkeeper as the child of a process that waits for it, as the registry's is the registry's."""
    program = "import subprocess, sys; sys.exit(subprocess.run(sys.argv[1:]).returncode)"
    command = [sys.executable, str(DEPLOY / "doorkeeper.py"), str(doors)]
    own = {"PEERLOOM_ADDRESS": system.address, "PEERLOOM_IDENTITY": str(system.operator_file)}
    parent = subprocess.Popen(
        [sys.executable, "-c", program, *command], env={**os.environ, **own}, start_new_session=True
    )
    try:
        yield parent
    finally:
        with suppress(ProcessLookupError):
            os.killpg(parent.pid, signal.SIGKILL)
        parent.wait()


async def settled(system: DoorSystem, doors: Path, state: Path, service: str = "node") -> dict[str, str]:
    """The environment that start.py gives a container of this service."""
    from start import settle  # only a deployment has this module in its path

    own = {"STATE": str(state), "REGISTRY": system.address, "ADVERTISE": "127.0.0.1:1"}
    environment = {f"PEERLOOM_{service.upper()}_{name}": value for name, value in own.items()}
    environment["DOOR"] = str(doors / service / "door.sock")
    await asyncio.to_thread(settle, service, environment)
    return environment


async def come_in(state: Path, environment: dict[str, str]) -> Principal:
    """Who the service is that starts with this environment."""
    token = next((value for name, value in environment.items() if name.endswith("_JOIN")), "")
    identity = await enter(state, token, SystemClock())
    assert identity is not None, "it was given no token"
    return identity.principal


@pytest.fixture
def system(start_service: StartService, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> DoorSystem:
    monkeypatch.syspath_prepend(str(DEPLOY))
    return DoorSystem(tmp_path, start_service)


async def test_a_container_gets_a_token_of_its_role_and_asks_for_none_once_it_is_in(
    system: DoorSystem, doors: Path, tmp_path: Path
) -> None:
    with doorkeeper(system, doors):
        node, selector = tmp_path / "node", tmp_path / "selector"
        first = await settled(system, doors, node)
        who = await come_in(node, first)
        assert (who.role, who.owner) == (Role.NODE, "registry")
        assert "PEERLOOM_NODE_JOIN" not in await settled(system, doors, node)
        asked = await settled(system, doors, selector, "selector")
        assert (await come_in(selector, asked)).role is Role.SELECTOR


async def test_a_node_that_was_away_for_too_long_comes_back_as_itself_and_not_as_another_owners(
    system: DoorSystem, doors: Path, tmp_path: Path
) -> None:
    foreign = Identity(await system.admit("node", "ada")).principal
    with doorkeeper(system, doors):
        state = tmp_path / "node"
        who = await come_in(state, await settled(system, doors, state))
        end_long_ago(system, state / "identity.pem", who)
        assert await come_in(state, await settled(system, doors, state)) == who
        end_long_ago(system, state / "identity.pem", Principal(Role.NODE, foreign.id, "registry"))
        other = await come_in(state, await settled(system, doors, state))
        assert other.id not in (who.id, foreign.id)


def end_long_ago(system: DoorSystem, path: Path, principal: Principal) -> None:
    """Puts a certificate there that this registry's authority signed, and that ended 40 days ago."""
    pem = (system.state / "authority" / "authority-000001.pem").read_bytes()
    begin = pem.index(b"-----BEGIN CERTIFICATE")
    key, then_s = Identity(path).current.key, time.time() - 41 * 86_400
    signed = Authority(pem[:begin], pem[begin:]).sign(make_request(key), principal, then_s, 86_400)
    write_identity(path, Credentials.parse(key + signed + pem[begin:]))


async def test_a_container_takes_the_token_that_has_its_name(
    system: DoorSystem, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a Secret brings them: each with its maker's address, for one that knows the registry by another."""
    from start import settle

    token, _, join_address = (await system.token("selector")).rpartition("@")
    tokens, state = tmp_path / "tokens", tmp_path / "selector"
    tokens.mkdir()
    (tokens / socket.gethostname()).write_text(f"{token}@elsewhere:{join_address.rpartition(':')[2]}\n")
    own = {"STATE": str(state), "REGISTRY": system.address, "ADVERTISE": "127.0.0.1:1"}
    given = {**{f"PEERLOOM_SELECTOR_{name}": value for name, value in own.items()}, "TOKENS": str(tokens)}
    first, second = dict(given), dict(given)
    settle("selector", first)
    assert (await come_in(state, first)).role is Role.SELECTOR
    (tokens / socket.gethostname()).unlink()
    settle("selector", second)
    assert "PEERLOOM_SELECTOR_JOIN" not in second, "who is in needs none"


def test_who_finds_no_token_says_where_it_looked(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.syspath_prepend(str(DEPLOY))
    from start import read_token

    with pytest.raises(LookupError, match=f"no token came to {tmp_path}/.* within 0 s: make one by peerloom"):
        read_token(tmp_path, "registry:7400", limit_s=0)


async def test_a_doorkeeper_that_ends_ends_the_registry_with_it(system: DoorSystem, doors: Path) -> None:
    """For Docker to start both again: nobody else would see that the door is closed."""
    with doorkeeper(system, doors / "nowhere") as parent:
        assert await asyncio.to_thread(parent.wait, 60) == -signal.SIGTERM


def test_who_finds_no_doorkeeper_says_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.syspath_prepend(str(DEPLOY))
    from start import ask_for_token

    with pytest.raises(LookupError, match="is the registry up"):
        ask_for_token(tmp_path / "door.sock", b"", "registry:7400", limit_s=0)


def identity_of(folder: Path, principal: Principal, authority: Authority) -> Identity:
    """Somebody's, in a file of their name."""
    path = folder / f"{principal.id}.pem"
    write_identity(path, authority.credentials(principal, time.time(), 3600.0))
    return Identity(path)


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[tuple[Server, list[str], str]]:
    """A real server of ours whose probe fails while the list of reasons holds one."""
    reasons: list[str] = []
    own = identity_of(tmp_path, Principal(Role.SELECTOR, "selector", "ada"), Authority.new(time.time(), 1))

    async def probe() -> None:
        if reasons:
            raise OSError(reasons[0])

    async with Server(Endpoint("127.0.0.1:0", own), ["peerloom.v1.RegistryService"]) as server:
        await server.start({"disk": probe})
        yield server, reasons, server.address


async def ask(port: str, identity: Path, *name: str) -> tuple[int | None, str]:
    """The health check's exit status and what it said, run as the image runs it."""
    program = await asyncio.create_subprocess_exec(
        *(sys.executable, "-IS", str(DEPLOY / "probe.py"), port, str(identity), *name),
        stderr=asyncio.subprocess.PIPE,
    )
    _, said = await program.communicate()
    return program.returncode, said.decode().strip()


async def test_the_health_check_says_what_the_server_says(
    server: tuple[Server, list[str], str], tmp_path: Path
) -> None:
    """SERVING is 0; NOT_SERVING is 1, as soon as the server's own probe has found it out."""
    _, reasons, address = server
    port, identity = address.rpartition(":")[2], tmp_path / "selector.pem"
    assert await ask(port, identity) == (0, "")
    reasons.append("the disk is full")
    async with asyncio.timeout(60):
        while (answer := await ask(port, identity)) == (0, ""):
            pass
    assert answer == (1, "it says that it can't serve now")
    assert (await ask(port, identity, "peerloom.v1.RegistryService"))[0] == 1
    assert await ask(port, identity, LIVE) == (0, ""), "the process itself is well"
    assert await ask(port, identity, "nobody") == (1, "it gave no answer")


async def test_the_health_check_believes_only_its_own_authority(
    server: tuple[Server, list[str], str], tmp_path: Path
) -> None:
    other = Principal(Role.SELECTOR, "stranger", "ada")
    identity_of(tmp_path, other, Authority.new(time.time(), 2))
    status, said = await ask(server[2].rpartition(":")[2], tmp_path / "stranger.pem")
    assert status == 1
    assert said.startswith("it can't be reached")


async def test_the_health_check_fails_without_a_server_or_an_identity(tmp_path: Path) -> None:
    identity_of(tmp_path, Principal(Role.SELECTOR, "selector", "ada"), Authority.new(time.time(), 1))
    with socket.create_server(("127.0.0.1", 0)) as unused:
        port = unused.getsockname()[1]
    for name in ("selector.pem", "nobody.pem"):
        status, said = await ask(str(port), tmp_path / name)
        assert status == 1
        assert said.startswith("it can't be reached")


async def test_the_health_check_fails_on_what_is_no_grpc(tmp_path: Path) -> None:
    own = identity_of(tmp_path, Principal(Role.SELECTOR, "selector", "ada"), Authority.new(time.time(), 1))

    async def hang_up(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(24)
        writer.close()

    context = own.server_context()
    async with await asyncio.start_server(hang_up, "127.0.0.1", 0, ssl=context) as other:
        status, said = await ask(str(other.sockets[0].getsockname()[1]), own.path)
    assert (status, said) == (1, "it gave no answer")
