"""Stands in for an agent's fork server: its workers are simulated processes that follow a script."""

import asyncio
from collections.abc import Callable
from typing import Any

from peerloom.testing.scripted_worker import ScriptedWorker
from peerloom.testing.simulated_processes import Process, ProcessRun
from peerloom.worker.assignment import Assignment

_FORK_S = (0.01, 0.05)
_SIGNAL_S = 0.001


class ScriptedProcess:
    """A worker process as the agent holds it."""

    def __init__(self, agent: ProcessRun, number: int) -> None:
        self._agent = agent
        self.pid = 1000 + number
        self.why_ended = ""
        self.ended = asyncio.Event()
        self.exit_code: int | None = None
        self._assignment: Assignment | None = None
        self._worker: ScriptedWorker | None = None
        world = agent.world
        self._process = world.add(f"{agent.name}.worker{number}", agent.host, self._main, agent.process.disk)
        self._process.restarts = False
        self._process.on_end = self._gone
        agent.children.append(self._process)

    def assign(self, assignment: Assignment) -> None:
        """Tells it what to do."""
        self._assignment = assignment
        world = self._agent.world
        world.observed.slot_taken(self._agent.name, assignment.slot, assignment.worker_id)
        world.loop.later(world.chance.uniform(*_FORK_S), self._process.start)

    def ask_to_leave(self, reason: str, grace_s: float) -> None:
        """Over its standard input."""
        self._tell(lambda worker: worker.session.leave(reason, grace_s))

    def ask_to_stay(self) -> None:
        """Over its standard input."""
        self._tell(lambda worker: worker.session.stay())

    async def stop(self, grace_s: float) -> None:
        """SIGTERM, after the grace SIGKILL; returns when it is gone."""
        self._tell(lambda worker: worker.session.leave("its node asked it to leave", 0.0))
        if self._process.is_running:
            try:
                await asyncio.wait_for(self.ended.wait(), grace_s)
                return
            except TimeoutError:
                self._process.kill("its agent made it end")
        elif not self.ended.is_set():  # it had not begun
            self._process.start = lambda: None  # type: ignore[method-assign]  # nor will it
            self._gone("stopped before it ran")
        await self.ended.wait()

    def _tell(self, word: Callable[[ScriptedWorker], Any]) -> None:
        worker = self._worker
        if worker is not None and not worker.run.is_dead:
            self._agent.world.loop.call_later(_SIGNAL_S, word, worker, context=worker.run.context)

    async def _main(self, run: ProcessRun) -> None:
        assert self._assignment is not None, "it is assigned before it starts"
        self._worker = ScriptedWorker(run, self._assignment)
        self.exit_code = await self._worker.work()

    def _gone(self, reason: str) -> None:
        world, assignment = self._agent.world, self._assignment
        if self.exit_code is None:
            self.exit_code = -9
        if self._worker is not None:
            self._worker.lost()
        if assignment is not None:
            world.observed.slot_freed(self._agent.name, assignment.slot, assignment.worker_id)
        world.processes.pop(self._process.name, None)
        world.loop.call_later(_SIGNAL_S, self.ended.set, context=self._agent.context)


class ScriptedStarter:
    """What the worker pool needs of a fork server."""

    def __init__(self, agent: ProcessRun) -> None:
        self._agent = agent
        self._numbers = 0

    async def start(self, *, brings_code: bool) -> ScriptedProcess:
        """A new worker, which waits for its assignment."""
        self._numbers += 1
        number = 100 * self._agent.number + self._numbers
        return ScriptedProcess(self._agent, number)

    def want(self, is_wanted: bool) -> None:
        """Nothing is kept warm."""

    async def keep(self) -> None:
        """Nothing is kept warm."""
        await asyncio.Event().wait()

    async def close(self) -> None:
        """Nothing is kept warm."""


def is_worker(process: Process) -> bool:
    """Whether a process is a worker."""
    return ".worker" in process.name
