"""Processes that can be killed, frozen and started again, and the disks that outlive them."""

import asyncio
import contextvars
import random
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from peerloom.testing.memory_network import MemoryNetwork
from peerloom.testing.model_script import ModelScripts
from peerloom.testing.observer import Observer
from peerloom.testing.told_history import History
from peerloom.testing.training_script import Scripts
from peerloom.testing.virtual_loop import OrderedTask, VirtualLoop, current_run
from peerloom.v1.registry_pb2 import MachineLoad

Main = Callable[["ProcessRun"], Coroutine[Any, Any, None]]
_UNWINDINGS = 20  # some take a cancellation for the end of a call, and go on
RESTART_S = 1.0  # a supervisor starts a service again that ended by itself
# How long TCP tries to reach a database before kit/database's limits end the connection.
DATABASE_PATIENCE_S = (1.0, 10.0)
BROKEN_ANSWER_S = (0.0, 0.5)  # until it is known that an answer won't come, its connection being broken


class Disk:
    """What a machine keeps: files in a folder, and databases. `failing` says why nothing can be stored.

    With a `database_host` the databases are on another machine, where several processes reach them.
    """

    def __init__(self, folder: Path, database_host: str = "") -> None:
        self.folder, self.database_host = folder, database_host
        self.databases: dict[str, Any] = {}
        self.failing = ""
        self.slow_s = 0.0
        self.on_begin: Callable[[], None] = lambda: None
        self.on_commit: Callable[[], None] = lambda: None

    def close(self) -> None:
        """Forgets the databases."""
        for connection in self.databases.values():
            connection.forget()


class ProcessRun:
    """One life of a process, from its start to its death."""

    def __init__(self, world: "MemoryWorld", process: "Process", number: int) -> None:
        self.world, self.process, self.number = world, process, number
        self.name, self.host = process.name, process.host
        self.is_dead = self.is_frozen = False
        self.tasks: list[OrderedTask] = []
        self.children: list[Process] = []
        self.stop: Callable[[], None] | None = None  # asks for a polite end
        self._waiting: list[asyncio.Handle] = []
        self._checked = 64
        self.context = contextvars.copy_context()
        self.context.run(current_run.set, self)

    def admits(self, handle: asyncio.Handle) -> bool:
        """Whether a callback may run now."""
        if self.is_frozen or self.is_dead:
            self._waiting.append(handle)
        return not (self.is_dead or self.is_frozen)

    def adopt(self, task: OrderedTask) -> None:
        """Keeps its tasks: those of a dead process must not be finished by the garbage collector."""
        self.tasks.append(task)
        if len(self.tasks) > self._checked:
            self.tasks = [known for known in self.tasks if not known.done()]
            self._checked = 2 * len(self.tasks) + 64

    def disk_delays_s(self) -> tuple[float, float]:
        """A disk takes its time, mostly little."""
        chance, slow_s = self.world.disk_chance, self.process.disk.slow_s
        before_s, after_s = slow_s * chance.random(), slow_s * chance.random()
        if at := self.process.disk.database_host:
            network = self.world.network
            before_s += chance.uniform(*DATABASE_PATIENCE_S) if network.link(self.host, at).cuts else 0.0
            after_s += chance.uniform(*BROKEN_ANSWER_S) if network.link(at, self.host).cuts else 0.0
        return before_s + chance.uniform(0.0001, 0.002), after_s + chance.uniform(0.0, 0.002)

    def spawn(self, work: Coroutine[Any, Any, Any]) -> "asyncio.Task[Any]":
        """Runs a coroutine as a task of this process."""
        return self.world.loop.create_task(work, context=self.context.copy())

    def freeze(self) -> None:
        """Stops in the middle of whatever it does."""
        self.is_frozen = True
        self.world.network.process_froze(self)

    def thaw(self) -> None:
        """Goes on; what came meanwhile is there at once."""
        self.is_frozen = False
        if self.is_dead:
            return
        self._catch_up()

    def revive(self) -> None:
        """At the end of a world its dead get what they missed, so that their coroutines can end, too."""
        self.is_dead = self.is_frozen = False
        self._catch_up()

    def _catch_up(self) -> None:
        waiting, self._waiting = self._waiting, []
        for handle in waiting:
            if not handle._cancelled:
                self.world.loop._ready.append(handle)  # type: ignore[attr-defined]  # asyncio's own queue

    def end(self) -> None:
        """From now on nothing of it happens; what it had started ends a moment later."""
        self.is_dead = True
        self.world.network.process_died(self)
        for child in self.children:
            self.world.loop.later(self.world.chance.uniform(0.001, 0.05), child.kill, "its parent is gone")


class Process:
    """One program on one machine, over all its lives."""

    def __init__(self, world: "MemoryWorld", name: str, host: str, disk: Disk, main: Main) -> None:
        self.world, self.name, self.host, self.disk = world, name, host, disk
        self._main = main
        self.run: ProcessRun | None = None
        self.lives = 0
        self.restarts = True
        self.restart_s = RESTART_S
        self.on_end: Callable[[str], None] = lambda reason: None

    @property
    def is_running(self) -> bool:
        """Whether it lives, frozen or not."""
        return self.run is not None

    def start(self) -> None:
        """Begins a new life with what the disk holds; nothing happens while it lives."""
        if self.run is not None or self.world.is_ending:
            return
        self.lives += 1
        run = self.run = ProcessRun(self.world, self, self.lives)
        self.world.history.note(f"{self.name} starts")
        task = run.spawn(self._main(run))
        task.add_done_callback(lambda done: self._ended(run, done), context=contextvars.Context())

    def kill(self, reason: str) -> None:
        """As SIGKILL."""
        if self.run is not None:
            self.world.history.note(f"{self.name} is killed: {reason}")
            self._end(self.run, reason)

    def _end(self, run: ProcessRun, reason: str) -> None:
        self.run = None
        run.end()
        self.world.dead.append(run)  # its tasks stay where they were
        self.on_end(reason)

    def _ended(self, run: ProcessRun, task: "asyncio.Task[Any]") -> None:
        if run.is_dead:
            return
        error = None if task.cancelled() else task.exception()
        how = "ended" if error is None else f"failed: {type(error).__name__}: {error}"
        self.world.history.note(f"{self.name} {how}")
        if error is not None:
            self.world.crashes.append((self.name, error))
        self._end(run, how)
        if self.restarts:
            self.world.loop.later(self.restart_s, self.start)


@dataclass
class MemoryWorld:
    """Everything of one history. The dice are apart, so that one more roll here changes nothing there."""

    seed: int
    folder: Path
    loop: VirtualLoop
    history: History
    network: MemoryNetwork
    chance: random.Random
    disk_chance: random.Random
    processes: dict[str, Process] = field(default_factory=dict)
    dead: list[ProcessRun] = field(default_factory=list)
    crashes: list[tuple[str, BaseException]] = field(default_factory=list)
    is_ending: bool = False
    scripts: Scripts = field(default_factory=Scripts)
    models: ModelScripts = field(default_factory=ModelScripts)
    loads: dict[str, MachineLoad] = field(default_factory=dict)
    ahead_s: dict[str, float] = field(default_factory=dict)  # of the right time, each host's wall clock
    evaluator_dies: float = 0.0  # so often; no reason for a job to fail
    observed: Observer = field(init=False)

    def __post_init__(self) -> None:
        self.observed = Observer(self.network, f"{self.seed}/collectives")

    @classmethod
    def create(
        cls, seed: int, folder: Path, history: History, loop: VirtualLoop | None = None
    ) -> "MemoryWorld":
        """An empty world whose time is 0."""
        loop = loop or VirtualLoop()
        history.clock = loop.time
        network = MemoryNetwork(loop, random.Random(f"{seed}/network"))
        network.on_message = history.message
        world = cls(
            seed,
            folder,
            loop,
            history,
            network,
            random.Random(f"{seed}/world"),
            random.Random(f"{seed}/disk"),
        )
        loop.set_exception_handler(world._note_error)
        return world

    def _note_error(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception")
        self.history.note(f"error in the loop: {context['message']}: {error!r}")
        if error is not None:
            self.crashes.append((context["message"], error))

    def add(self, name: str, host: str, main: Main, disk: Disk | None = None) -> Process:
        """A process that doesn't run yet, with a disk of its own unless it shares one."""
        process = Process(self, name, host, disk or Disk(self.folder / name), main)
        self.processes[name] = process
        return process

    def _runs(self) -> list[ProcessRun]:
        living = [process.run for process in self.processes.values() if process.run is not None]
        return [*self.dead, *living]

    def note_unseen_errors(self) -> None:
        """Tasks that failed, which nobody has looked at."""
        for run in self._runs():
            for task in run.tasks:
                if task.done() and task._log_traceback:  # asyncio's own note
                    error = task.exception()
                    if error is not None:
                        self.crashes.append((f"a task of {run.name}, which nobody awaits", error))

    async def unwind(self) -> None:
        """Lets all coroutines end, those of the dead too: the garbage collector would complain of them."""
        self.is_ending = True
        for run in self._runs():
            run.revive()
        for _ in range(_UNWINDINGS):
            others = asyncio.all_tasks() - {asyncio.current_task()}
            if not others:
                break
            for task in others:
                task.cancel()
            await asyncio.wait(others, timeout=1.0)
        await self.loop.shutdown_asyncgens()

    def close(self) -> None:
        """Ends the history: nothing that was still to come happens."""
        self.loop.is_over = True
        self.loop.close()
        for process in self.processes.values():
            process.disk.close()
