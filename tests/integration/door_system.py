"""A registry with a door, and those who joined it; certificates are made by its own tokens."""

import asyncio
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

from peerloom.admission.join_string import JoinString
from peerloom.admission.joining import join_by_token
from peerloom.client.async_client import AsyncClient
from peerloom.client.types.admission import TokenRole
from peerloom.kit.dialing import Dialer
from peerloom.kit.identity import Identity
from peerloom.v1.registry_pb2 import ListServicesRequest, NodeState, WatchNodesRequest

LIMIT_S = 60.0
QUIET = ("--log-level", "warning")


class DoorSystem:
    """Its registry; `life_s` is how long certificates live. `start` is the fixture `start_service`.

    All listens at `host`.
    """

    def __init__(self, folder: Path, start: Any, life_s: float = 3600.0, host: str = "127.0.0.1") -> None:
        self.folder, self._start, self._host = folder, start, host
        self.state, self._life_s = folder / "registry", life_s
        self.registry = self.start_registry()

    def start_registry(self) -> Any:
        """Its process."""
        places = ("--join-listen", f"{self._host}:0", "--listen", f"{self._host}:0")
        flags = ("--state", str(self.state), *places)
        hours = f"--certificate-hours={self._life_s / 3600}"
        self.registry = self._start("registry", *flags, hours)
        return self.registry

    @property
    def address(self) -> str:
        """The registry's host:port."""
        return str(self.registry.address)

    @property
    def operator_file(self) -> Path:
        """Who runs the registry."""
        return self.state / "operator.pem"

    def client(self, identity: Path | None = None) -> AsyncClient:
        """The SDK, as the operator or somebody else."""
        return AsyncClient(self.address, identity=str(identity or self.operator_file))

    async def token(self, role: TokenRole, owner: str = "", name: str = "", ttl_s: float = 900) -> str:
        """A token's whole string, made by the operator."""
        async with self.client() as client:
            made = await client.door.create_token(role, owner=owner, name=name, ttl=timedelta(seconds=ttl_s))
            return made.text

    async def admit(self, role: TokenRole, owner: str = "") -> Path:
        """The identity's file of somebody new."""
        text = await self.token(role, owner)
        path = self.folder / f"{JoinString.parse(text).token_id}.pem"
        await join_by_token(JoinString.parse(text), path)
        return path

    async def dialer(self, role: TokenRole, owner: str = "") -> Dialer:
        """Calls others as somebody new."""
        return Dialer(Identity(await self.admit(role, owner)))

    def start_service(self, name: str, token: str, *flags: str, folder: str = "", **environment: str) -> Any:
        """Selector, trainer or node_agent, which joins with the token."""
        state = self.folder / (folder or name)
        own = ("--registry", self.address, "--state", str(state), "--join", token)
        own += () if "--listen" in flags else ("--listen", f"{self._host}:0")
        return self._start(name, *own, *QUIET, *flags, **environment)

    async def start_all(
        self,
        owners: tuple[str, ...],
        elsewhere: Mapping[str, tuple[str, str]] | None = None,
        **environment: str,
    ) -> dict[str, Any]:
        """Selector, trainer, and a node of one slot for each of the owners, by their names.

        `elsewhere` has the host and the network namespace of those nodes that are not here.
        """
        started = {}
        for name in ("selector", "trainer"):
            started[name] = self.start_service(name, await self.token(name))  # type: ignore[arg-type]
        for number, owner in enumerate(owners, 1):
            name, token = f"node-{number}", await self.token("node", owner)
            own = ("--name", name, "--slots", "1", "--threads-per-slot", "1")
            host, inside = (elsewhere or {}).get(name, (self._host, ""))
            more = {**environment, "inside": inside}
            started[name] = self.start_service(
                "node_agent", token, *own, "--listen", f"{host}:0", folder=name, **more
            )
        await self._see_all(len(owners))
        return started

    async def _see_all(self, nodes: int) -> None:
        """Waits until the nodes are alive, by the registry's events, and selector and trainer are listed."""
        dialer, seen = Dialer(Identity(self.operator_file)), set[str]()
        async with asyncio.timeout(LIMIT_S), dialer.registry(self.address) as registry:
            async for event in registry.stream(registry.stub.WatchNodes, WatchNodesRequest()):
                seen |= {event.node.node_id} if event.node.state == NodeState.NODE_STATE_ALIVE else set()
                if len(seen) == nodes:
                    break
            listed = 0
            while listed < 2:
                answer = await registry.call(registry.stub.ListServices, ListServicesRequest())
                listed = len(answer.services)
