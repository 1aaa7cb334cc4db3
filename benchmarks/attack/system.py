"""A system of real processes in one folder: closed, with a door, or plain, with neither door nor sandbox."""

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path

from peerloom.admission.join_string import JoinString
from peerloom.admission.joining import certify, join_by_token
from peerloom.client.async_client import AsyncClient
from peerloom.client.types.admission import TokenRole
from peerloom.embedded.process import SupervisedProcess, end_together
from peerloom.kit.dialing import Dialer
from peerloom.kit.identity import Identity, write_identity
from peerloom.kit.ids import new_request_id, new_secret
from peerloom.v1.admission_pb2 import CertifyChildRequest
from peerloom.v1.registry_pb2 import NodeSpec, NodeState, RegisterRequest, RegisterResponse, WatchNodesRequest

START_S, STOP_S = 90.0, 20.0
COORDINATORS: tuple[TokenRole, ...] = ("selector", "trainer")
NODES = {"lending": "ada", "open": "bob"}  # by name: the owner; "open" lets code in, "lending" lends a folder
ATTACKER = "eve"
# Victims' agents don't run; jobs shall not ask them.
REAL = {"real": "yes"}
_REST = ("--log-level", "warning", "--listen", "127.0.0.1:0")
_NODE = ("--slots", "3", "--threads-per-slot", "1", "--measure-interval-s", "0")
# Short, so that what an attack may reserve is free again for the next one.
_HASTE = ("--reservation-s", "2", "--accelerator", "cpu")


@dataclass(frozen=True)
class Victim:
    """A node of another owner: what the registry gave it, and what an attacker knows of it at most."""

    session: RegisterResponse
    request: RegisterRequest


@dataclass
class System:
    """Its processes by name, and who may call them. Without a door everybody is nobody: calls are plain."""

    folder: Path
    is_closed: bool
    modules: Path
    processes: dict[str, SupervisedProcess] = field(default_factory=dict)
    addresses: dict[str, str] = field(default_factory=dict)
    _lifeline: tuple[int, int] = (-1, -1)

    @property
    def registry(self) -> str:
        """The registry's host:port."""
        return self.addresses["registry"]

    @property
    def lent(self) -> Path:
        """The folder that the owner of "lending" lends to jobs."""
        return self.folder / "lent"

    @property
    def secret(self) -> Path:
        """A file of the owner's, beside the lent folder."""
        return self.folder / "secret" / "diary.txt"

    async def start(self) -> None:
        """Starts everything and returns when all know of each other."""
        self._lifeline = os.pipe()
        for path in (self.lent, self.secret.parent):
            path.mkdir(parents=True)
        self.secret.write_text("Nobody but its owner shall read this. " * 200)
        door = ("--join-listen", "127.0.0.1:0") if self.is_closed else ()
        await self._start("registry", "registry", *door)
        for name in COORDINATORS:
            # The control shows what an attack gains where nobody looks.
            more = ("--evaluate", "auto" if self.is_closed else "off") if name == "trainer" else ()
            await self._start(name, name, *await self._joining(name), *more)
        nodes = NODES if self.is_closed else {"open": "bob"}
        started = [self._start_node(name, owner) for name, owner in nodes.items()]
        await asyncio.gather(*started)
        await self._see(len(nodes))

    async def stop(self) -> None:
        """Ends all processes."""
        await asyncio.to_thread(end_together, list(self.processes.values())[::-1], STOP_S)
        for process in self.processes.values():
            process.close()
        for end in self._lifeline:
            os.close(end)

    def client(self, identity: Path | None = None) -> AsyncClient:
        """The SDK, as the operator or somebody else; plain where the system is."""
        if not self.is_closed:
            return AsyncClient(self.registry)
        return AsyncClient(self.registry, identity=str(identity or self.folder / "registry" / "operator.pem"))

    def operator(self) -> Dialer:
        """Calls as whoever runs the registry."""
        return self._dialer(self.folder / "registry" / "operator.pem")

    async def token(self, role: TokenRole, owner: str = "", ttl_s: float = 900) -> str:
        """A token that the operator makes."""
        async with self.client() as client:
            made = await client.door.create_token(role, owner=owner, ttl=timedelta(seconds=ttl_s))
            return made.text

    async def admit(self, role: TokenRole, owner: str) -> Path:
        """The identity's file of somebody new; in a plain system there is none, and none is needed."""
        if not self.is_closed:
            return self.folder / "nobody.pem"
        token = JoinString.parse(await self.token(role, owner))
        path = self.folder / "admitted" / token.token_id / "identity.pem"
        path.parent.mkdir(parents=True)
        await join_by_token(token, path)
        return path

    async def dialer(self, role: TokenRole, owner: str = ATTACKER) -> Dialer:
        """Calls as somebody new."""
        return self._dialer(await self.admit(role, owner))

    async def worker(self, node: Dialer, worker_id: str, job_id: str) -> Dialer:
        """Calls with a worker's certificate, which the registry makes for any node that asks."""
        async with node.admission(self.registry) as door:

            async def ask(request: bytes) -> tuple[bytes, bytes]:
                child = CertifyChildRequest(
                    certificate_request=request, role="worker", id=worker_id, job_id=job_id
                )
                answer = await door.call(door.stub.CertifyChild, child)
                return answer.certificate, answer.authorities

            path = self.folder / "admitted" / f"{new_request_id()}.pem"
            write_identity(path, await certify(ask))
        return Dialer(Identity(path))

    async def victim(self) -> Victim:
        """A node of ada's that has just registered."""
        own = await self.dialer("node", "ada")
        spec = NodeSpec(name=f"victim-{new_request_id()[:8]}", address="127.0.0.1:9", slots=1)
        request = RegisterRequest(spec=spec, node_key=new_secret(), request_id=new_request_id())
        async with own.registry(self.registry) as registry:
            return Victim(await registry.call(registry.stub.Register, request), request)

    async def add_node(self, name: str, owner: str, *flags: str) -> None:
        """Starts one more node."""
        own = ("--name", name, *_NODE, *_HASTE, *flags)
        await self._start(name, "node_agent", *await self._joining("node", owner), *own)

    def _dialer(self, path: Path) -> Dialer:
        return Dialer(Identity(path)) if self.is_closed else Dialer()

    async def _joining(self, role: TokenRole, owner: str = "") -> tuple[str, ...]:
        own = ("--registry", self.registry)
        return (*own, "--join", await self.token(role, owner)) if self.is_closed else own

    async def _start_node(self, name: str, owner: str) -> None:
        labels = "real=yes,code=yes" if name == "open" else "real=yes,lends=yes"
        flags = [*await self._joining("node", owner), "--name", name, "--labels", labels, *_NODE, *_HASTE]
        if name == "open":
            flags += ["--allow-code"] + ([] if self.is_closed else ["--no-sandbox", "--data-root", "/"])
        else:
            flags += ["--data-root", str(self.lent)]
        await self._start(name, "node_agent", *flags)

    async def _start(self, name: str, service: str, *flags: str) -> None:
        process = SupervisedProcess(name, self.folder / "logs" / f"{name}.log")
        state = ("--state", str(self.folder / name))
        command = [sys.executable, "-m", f"peerloom.services.{service}", *state, *_REST, *flags]
        paths = os.pathsep.join([str(self.modules), os.environ.get("PYTHONPATH", "")]).strip(os.pathsep)
        self.processes[name] = process
        process.start(
            command, self._lifeline[0], environment={"PYTHONPATH": paths, "OWNERS_PASSWORD": "swordfish"}
        )
        self.addresses[name] = await asyncio.to_thread(process.wait_until_ready)

    async def _see(self, nodes: int) -> None:
        """Waits until the nodes are alive, by the registry's events, and both coordinators are listed."""
        seen = set[str]()
        async with asyncio.timeout(START_S), self.operator().registry(self.registry) as registry:
            async for event in registry.stream(registry.stub.WatchNodes, WatchNodesRequest()):
                seen |= {event.node.node_id} if event.node.state == NodeState.NODE_STATE_ALIVE else set()
                if len(seen) == nodes:
                    break
        async with asyncio.timeout(START_S), self.client() as client:
            # Other processes set no event of ours.
            while len(await client.services()) <= len(COORDINATORS) or len(await client.beliefs()) < nodes:  # noqa: ASYNC110  # each question is a wait
                await asyncio.sleep(0.1)


@asynccontextmanager
async def running(folder: Path, *, is_closed: bool, modules: Path) -> AsyncIterator[System]:
    """A system that runs until the block ends; `modules` is a folder that its nodes import from."""
    system = System(folder, is_closed, modules)
    try:
        await system.start()
        yield system
    finally:
        await system.stop()
