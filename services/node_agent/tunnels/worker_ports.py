"""A worker's own listening ports get a way in, and no others.

A job's code must not open the owner's other ports, an agent's or a printer's, to everybody.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress

import psutil

from peerloom.errors import PermissionDeniedError
from peerloom.kit.principal import Principal
from peerloom.services.node_agent.membership.reachability import local_host
from peerloom.services.node_agent.workers.local_pool import PooledWorker


class WorkerPorts:
    """`reached_at` is that of `WayIn`; `running` has the workers of this node, whose id `node_id` tells."""

    def __init__(
        self,
        reached_at: Callable[[int, str, Callable[[], bool]], Awaitable[str]],
        running: Callable[[], list[PooledWorker]],
        node_id: Callable[[], str],
    ) -> None:
        self._reached_at, self._running, self._node_id = reached_at, running, node_id
        self._listening: dict[str, Mapping[int, str]] = {}  # each worker's, as of when it asked last

    async def forward(self, caller: Principal | None, port: int) -> str:
        """Where others reach a worker's port. Raises PermissionDeniedError for one that isn't its own.

        What it listens at no longer, when it asks for the next, is closed.
        """
        worker = self._worker_of(caller)
        ports = await asyncio.to_thread(listening_ports, worker.process.pid) if worker is not None else {}
        if worker is None or port not in ports:
            raise PermissionDeniedError(
                f"{caller or 'Who has no certificate'} is no worker here that listens at port {port}: "
                "workers have their own ports forwarded only.",
                reason="NOT_YOUR_PORT",
            )
        running = {one.worker_id for one in self._running()}
        self._listening = {id_: found for id_, found in self._listening.items() if id_ in running}
        self._listening[worker.worker_id] = ports

        def is_open() -> bool:
            return worker.exit_code is None and port in self._listening.get(worker.worker_id, {})

        return await self._reached_at(port, ports[port], is_open)

    def _worker_of(self, caller: Principal | None) -> PooledWorker | None:
        if caller is None or caller.node != self._node_id():
            return None
        named = (caller.id, caller.job)
        return next((one for one in self._running() if (one.worker_id, one.job_id) == named), None)


def listening_ports(pid: int) -> dict[int, str]:
    """The TCP ports at which a process listens, each with a host where it is dialled here."""
    with suppress(psutil.Error):
        found = psutil.Process(pid).net_connections("tcp")
        listening = [one.laddr for one in found if one.status == psutil.CONN_LISTEN]
        return {address.port: local_host(address.ip) for address in listening}
    return {}
