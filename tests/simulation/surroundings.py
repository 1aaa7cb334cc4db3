"""What a history needs of the Python process around it: its time, its chance, and silence."""

import asyncio
import gc
import random
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, redirect_stderr, redirect_stdout
from functools import cache, partial
from io import StringIO
from typing import Any
from unittest import mock

import structlog

from peerloom.kit import backoff, ids
from peerloom.kit.database import Database
from peerloom.kit.lease import Lease
from peerloom.testing.service_wiring import clock_of
from peerloom.testing.simulated_processes import MemoryWorld
from peerloom.testing.virtual_loop import current_run

_ERROR = 40


@contextmanager
def surroundings(world: MemoryWorld) -> Iterator[None]:
    """While this lasts, product code that reads a clock or rolls dice gets those of the world."""
    loop = world.loop
    with ExitStack() as stack:
        for name in ("monotonic", "perf_counter"):
            stack.enter_context(mock.patch.object(time, name, loop.time))
        stack.enter_context(mock.patch.object(time, "time", partial(_wall_s, world)))
        stack.enter_context(mock.patch.object(ids, "entropy", random.Random(f"{world.seed}/ids")))
        stack.enter_context(
            mock.patch("peerloom.errors.nearest", return_value=[])
        )  # nobody reads it, and it is slow
        stack.enter_context(mock.patch.object(Database, "write", _watched(Database.write)))
        stack.enter_context(
            mock.patch.object(Lease, "take_if_allowed", _watched_taking(Lease.take_if_allowed))
        )
        stack.enter_context(redirect_stdout(StringIO()))
        stack.enter_context(redirect_stderr(StringIO()))
        stack.enter_context(_logs(world))
        before = random.getstate()
        random.seed(f"{world.seed}/product")
        backoff.pauses.seed(f"{world.seed}/pauses")
        asyncio.set_event_loop(loop)
        try:
            yield
        finally:
            random.setstate(before)
            world.close()
            asyncio.set_event_loop(None)


def _wall_s(world: MemoryWorld) -> float:
    run: Any = current_run.get()
    return clock_of(world, run.host if run is not None else "").wall_s()


def _watched(write: Any) -> Any:
    @contextmanager
    def watched(self: Database) -> Iterator[Any]:
        with write(self) as connection:
            yield connection
            run: Any = current_run.get()
            if run.world.observed.watches_leases:
                run.world.observed.wrote(run, connection, self.service)

    return watched


def _watched_taking(take: Any) -> Any:
    def watched(self: Lease) -> Any:
        verdict = take(self)
        run: Any = current_run.get()
        if verdict.may_take and run is not None and run.world.observed.watches_leases:
            run.world.observed.took(run, self.service)
        return verdict

    return watched


@contextmanager
def _logs(world: MemoryWorld) -> Iterator[None]:
    def keep(_: Any, level: str, event: dict[str, Any]) -> Any:
        error = event.get("exc_info")
        words = " ".join(f"{key}={value}" for key, value in event.items() if key != "event")
        world.history.note(f"error logged: {event['event']} {words}")
        if isinstance(error, BaseException):
            world.crashes.append((str(event["event"]), error))
        raise structlog.DropEvent

    before = structlog.get_config()
    wrapper = structlog.make_filtering_bound_logger(_ERROR)
    structlog.configure(processors=[keep], wrapper_class=wrapper, cache_logger_on_first_use=False)
    try:
        yield
    finally:
        structlog.configure(**before)


def _drop(_: Any, __: str, ___: dict[str, Any]) -> Any:
    raise structlog.DropEvent


@cache
def _set_imports_aside() -> None:
    """What is there before the first history need not be looked at after each."""
    gc.collect()
    gc.freeze()


@contextmanager
def silence() -> Iterator[None]:
    """Nobody hears what a history's unfinished coroutines say when the garbage collector ends them."""
    before, hook = structlog.get_config(), sys.unraisablehook
    structlog.configure(processors=[_drop], cache_logger_on_first_use=False)
    sys.unraisablehook = lambda _: None
    gc.disable()
    _set_imports_aside()
    try:
        yield
    finally:
        gc.collect()
        gc.enable()
        sys.unraisablehook = hook
        structlog.configure(**before)
