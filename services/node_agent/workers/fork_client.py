"""Keeps the process that workers are forked from: a job starts, and a lost worker is replaced, at once.

The process is a `peerloom.worker.fork_server`; this is its client's side.
"""

import asyncio
import socket
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress

from peerloom.errors import FailedPreconditionError
from peerloom.kit.backoff import Backoff
from peerloom.kit.logs import get_logger
from peerloom.sandbox.cgroups import Cgroup
from peerloom.services.node_agent.workers.forked_worker import ForkedWorker

_log = get_logger()
READY_LIMIT_S = 300.0
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.2, 60.0
_STOP_GRACE_S = 1.0


class _ForkProcess:
    """One process that forks, and our end of its socket.

    Closed, it forks no more, and ends when its workers have.
    """

    def __init__(self, process: asyncio.subprocess.Process, requests: socket.socket) -> None:
        self.process, self._requests = process, requests
        self.ready = asyncio.Event()
        self.ended = asyncio.create_task(process.wait())
        self._hears = asyncio.create_task(self._hear())

    @property
    def takes(self) -> bool:
        """Whether it can be asked."""
        return self._requests.fileno() >= 0 and not self.ended.done()

    def ask(self, inputs: int, status: int) -> None:
        """Asks for a worker with these descriptors; one that isn't ready yet forks it then."""
        with suppress(OSError):  # it has just died: the status ends without a word
            socket.send_fds(self._requests, [b"w"], [inputs, status])

    def kill(self) -> None:
        """Ends it at once; its workers live on."""
        with suppress(ProcessLookupError):
            self.process.kill()

    def close(self) -> None:
        """Asks no more."""
        self._hears.cancel()
        self._requests.close()

    async def _hear(self) -> None:
        with suppress(OSError):
            if await asyncio.get_running_loop().sock_recv(self._requests, 1):
                self.ready.set()


class ForkServerClient:
    """Starts the process of `command`, and keeps it while that is wanted.

    The process and its workers get this `environment` and no other, and each worker a group of `make_group`.
    Without `keeps_warm` it is started only for a worker. `ready` is set while one that is kept forks at once.
    """

    def __init__(
        self,
        command: Sequence[str],
        environment: Mapping[str, str],
        *,
        keeps_warm: bool = True,
        make_group: Callable[[], Cgroup] | None = None,
    ) -> None:
        self._command, self._environment, self._make_group = command, environment, make_group
        self._keeps_warm, self._is_wanted = keeps_warm, False
        self._backoff = Backoff(_FIRST_PAUSE_S, _LONGEST_PAUSE_S)
        self._server: _ForkProcess | None = None
        self._closed: list[_ForkProcess] = []
        self._starting = asyncio.Lock()
        self._changed = asyncio.Event()
        self.ready = asyncio.Event()

    async def start(self) -> ForkedWorker:
        """A new worker, which waits for its assignment. Raises FailedPreconditionError if it can't be."""
        worker = await self._ask()
        if worker.ended.is_set() and not worker.pid:  # the server had just died, and nobody had seen it
            self._let_go()
            worker = await self._ask()
        self._changed.set()
        return worker

    def want(self, is_wanted: bool) -> None:
        """Whether the machine is lent: what nobody may use doesn't take up the owner's memory."""
        self._is_wanted = is_wanted and self._keeps_warm
        self._changed.set()

    async def keep(self) -> None:
        """Starts the process whenever it is missing, lets it go when it isn't wanted, until cancelled.

        After failures it waits, 60 s at most, so that a broken installation doesn't keep the machine busy.
        """
        while True:
            self._changed.clear()
            if not self._is_wanted:
                self._let_go()
                await self._changed.wait()
                continue
            try:
                server = await self._started()
            except FailedPreconditionError as error:
                await self._pause_after(error.message)
                continue
            await _first_of(server.ready.wait(), asyncio.shield(server.ended), limit_s=READY_LIMIT_S)
            if server.ready.is_set():
                self.ready.set()
                self._backoff.succeeded()
            else:
                server.kill()
            await _first_of(self._changed.wait(), asyncio.shield(server.ended))
            if server.ended.done():
                self.ready.clear()
                await self._pause_after(f"it ended with {server.process.returncode}")

    async def close(self) -> None:
        """Ends the process; call it when the workers have ended."""
        self.want(False)
        async with self._starting:  # one that is being started is let go too
            self._let_go()
        for server in self._closed:
            with suppress(TimeoutError):
                await asyncio.wait_for(asyncio.shield(server.ended), _STOP_GRACE_S)
            if not server.ended.done():
                server.kill()
                await server.ended

    def _let_go(self) -> None:
        self.ready.clear()
        self._closed = [server for server in self._closed if not server.ended.done()]
        if self._server is not None:
            self._server.close()
            self._closed.append(self._server)
            self._server = None

    async def _ask(self) -> ForkedWorker:
        server = await self._started()
        worker = await ForkedWorker.open(server.ask, await self._new_group())
        if server.ready.is_set():
            await _first_of(worker.started.wait(), worker.ended.wait())
        return worker

    async def _new_group(self) -> Cgroup | None:
        if self._make_group is None:
            return None
        try:
            return await asyncio.to_thread(self._make_group)
        except OSError as error:
            raise FailedPreconditionError(
                f"The worker gets no cgroup, and runs nowhere else: {error}. Start the agent anew.",
                reason="WORKER_NOT_STARTED",
            ) from error

    async def _started(self) -> _ForkProcess:
        async with self._starting:
            if self._server is None or not self._server.takes:
                self._let_go()
                self._server = await self._start()
            return self._server

    async def _start(self) -> _ForkProcess:
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        try:
            with theirs:
                process = await asyncio.create_subprocess_exec(
                    *self._command,
                    stdin=theirs.fileno(),
                    stdout=asyncio.subprocess.DEVNULL,
                    env=self._environment,
                    start_new_session=True,  # a Ctrl-C at the terminal is for the agent alone
                )
        except OSError as error:
            ours.close()
            raise FailedPreconditionError(
                f"The worker process {self._command[0]} can't be started: {error}.",
                reason="WORKER_NOT_STARTED",
            ) from error
        return _ForkProcess(process, ours)

    async def _pause_after(self, reason: str) -> None:
        pause_s = self._backoff.next_pause_s()
        _log.warning("fork_server_lost", reason=reason, failures=self._backoff.failures)
        await asyncio.sleep(pause_s)


async def _first_of(*waits: Awaitable[object], limit_s: float | None = None) -> None:
    tasks = [asyncio.ensure_future(wait) for wait in waits]
    try:
        await asyncio.wait(tasks, timeout=limit_s, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
