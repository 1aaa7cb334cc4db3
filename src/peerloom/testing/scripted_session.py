"""The real session between a worker and the trainer, on a loop that it shares with everybody."""

import asyncio
from typing import Any

from peerloom.kit.dialing import Dialer
from peerloom.testing.simulated_processes import ProcessRun
from peerloom.worker.assignment import Assignment
from peerloom.worker.session_ground import SessionGround
from peerloom.worker.trainer_session import TrainerSession


async def _end_nothing() -> None:
    """A real worker ends what is left on its own loop; here the loop is everybody's."""


class Commands:
    """What the trainer wants next, for a training without threads."""

    def __init__(self) -> None:
        self._queue: asyncio.Queue[Any] = asyncio.Queue()

    def put(self, command: Any) -> None:
        """From the session."""
        self._queue.put_nowait(command)

    async def get(self) -> Any:
        """The next one."""
        return await self._queue.get()


class ScriptedSession(TrainerSession):
    """The real session on the simulation's loop."""

    def __init__(
        self, run: ProcessRun, assignment: Assignment, dialer: Dialer, on_abort: Any, on_form_ahead: Any
    ) -> None:
        ground = SessionGround(run.world.loop, lambda _: dialer, _end_nothing)
        super().__init__(assignment, on_abort, on_form_ahead, ground=ground)
        self._simulated_run = run
        self.commands = Commands()  # type: ignore[assignment]  # awaited instead of waited for

    def start(self) -> None:
        """Connects."""
        self._simulated_run.spawn(self._keep_connected())
