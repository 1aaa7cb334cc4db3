"""What the pool needs of whatever starts its workers: forked processes, or a script in their place."""

import asyncio
from typing import Protocol

from peerloom.worker.assignment import Assignment


class WorkerHandle(Protocol):
    """One worker. `pid` is 0 until it runs; `ended` is set when it is gone.

    `why_ended` is what is known of its end besides, e.g. that it used too much memory; empty for nothing.
    """

    pid: int
    ended: asyncio.Event
    why_ended: str

    @property
    def exit_code(self) -> int | None:
        """Its exit status, negative for a signal, 255 for an unknown one; None while it runs."""

    def assign(self, assignment: Assignment) -> None:
        """Says what the worker has to do; once only. One that died meanwhile is seen by `ended`."""

    def ask_to_leave(self, reason: str, grace_s: float) -> None:
        """Asks it to hand over at a step boundary and to end; a replacement may be awaited for `grace_s`."""

    def ask_to_stay(self) -> None:
        """Takes `ask_to_leave` back; one that has left already is gone."""

    async def stop(self, grace_s: float) -> None:
        """Ends it, by force after `grace_s` seconds; returns when it is gone."""


class WorkerStarter(Protocol):
    """Starts workers, at once while it is wanted."""

    async def start(self, *, brings_code: bool) -> WorkerHandle:
        """A new worker, which waits for its assignment; whether its job `brings_code` decides what holds it.

        Raises FailedPreconditionError without one.
        """

    def want(self, is_wanted: bool) -> None:
        """Whether the machine is lent: what nobody may use doesn't take up the owner's memory."""

    async def keep(self) -> None:
        """Stays ready to start workers while that is wanted, until cancelled."""

    async def close(self) -> None:
        """Lets go of all that it holds; called when the workers have ended."""
