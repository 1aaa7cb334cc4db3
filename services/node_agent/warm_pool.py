"""Processes that have imported everything and wait for work, so that a job starts in milliseconds."""

import asyncio
from collections.abc import Callable, Mapping, Sequence

from peerloom.errors import PeerloomError
from peerloom.kit.logs import get_logger
from peerloom.services.node_agent.processes import WorkerProcess
from peerloom.services.node_agent.rules import pause_s

_log = get_logger()
READY_LIMIT_S = 300.0
_LONGEST_PAUSE_S = 60.0
_STOP_GRACE_S = 1.0


class WarmPool:
    """Keeps `wanted()` idle processes, started one after the other so that the owner hardly notices.

    `filled` is set while as many wait, ready, as were wanted when it last looked.
    """

    def __init__(
        self,
        command: Sequence[str],
        environment: Mapping[str, str],
        wanted: Callable[[], int],
        cores: Sequence[int] = (),
    ) -> None:
        self._command, self._environment, self._wanted, self._cores = command, environment, wanted, cores
        self._idle: list[WorkerProcess] = []
        self._watches: set[asyncio.Task[None]] = set()
        self._changed = asyncio.Event()
        self.filled = asyncio.Event()
        self._failures = 0

    async def take(self) -> WorkerProcess:
        """The process that is ready, else the one that will be soonest, else a fresh one.

        Raises FailedPreconditionError when none can be started.
        """
        alive = [process for process in self._idle if not process.ended.is_set()]
        if not alive:
            return await WorkerProcess.launch(self._command, self._environment, self._cores)
        taken = next((process for process in alive if process.ready.is_set()), alive[0])
        self._idle.remove(taken)
        self._failures = 0
        return taken

    def refill(self) -> None:
        """Looks again at how many are wanted."""
        self._changed.set()

    async def keep_filled(self) -> None:
        """Starts processes whenever some are missing, until cancelled.

        After failures it waits, 60 s at most, so that a broken installation doesn't keep the machine busy.
        """
        while True:
            self._idle = [process for process in self._idle if not process.ended.is_set()]
            if len(self._idle) >= self._wanted():
                self.filled.set()
                await self._changed.wait()
                self._changed.clear()
                continue
            self.filled.clear()
            if self._failures:
                await asyncio.sleep(pause_s(self._failures, _LONGEST_PAUSE_S))
            await self._add_one()

    async def close(self) -> None:
        """Ends all idle processes."""
        idle, self._idle = self._idle, []
        await asyncio.gather(*(process.stop(_STOP_GRACE_S) for process in idle))

    async def _add_one(self) -> None:
        try:
            process = await WorkerProcess.launch(self._command, self._environment, self._cores)
        except PeerloomError as error:
            self._note_failure(error.message)
            return
        self._idle.append(process)
        await _either(process.ready, process.ended)
        if process not in self._idle:
            return
        if process.ready.is_set() and not process.ended.is_set():
            watch = asyncio.create_task(self._watch(process))
            self._watches.add(watch)
            watch.add_done_callback(self._watches.discard)
            return
        self._idle.remove(process)
        await process.stop(0)
        self._note_failure(f"it was not ready within {READY_LIMIT_S:g} s, or ended with {process.exit_code}")

    async def _watch(self, process: WorkerProcess) -> None:
        await process.ended.wait()
        if process in self._idle:
            self._note_failure(f"it ended with {process.exit_code} while it waited")
            self.refill()

    def _note_failure(self, reason: str) -> None:
        self._failures += 1
        _log.warning("spare_worker_lost", reason=reason, failures=self._failures)


async def _either(first: asyncio.Event, second: asyncio.Event) -> None:
    waits = [asyncio.create_task(first.wait()), asyncio.create_task(second.wait())]
    try:
        await asyncio.wait(waits, timeout=READY_LIMIT_S, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for wait in waits:
            wait.cancel()
