"""A whole system in memory: the real services on virtual time, and the verbs with which a test moves them."""

import asyncio
import random
from collections.abc import Callable, Coroutine, Mapping
from contextlib import AbstractContextManager, ExitStack
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Self, TypeVar

from peerloom.client.address import Address
from peerloom.client.async_client import AsyncClient
from peerloom.client.client import Client
from peerloom.client.transport_seam import TransportSeam, use_transport
from peerloom.client.types import MachineLoad
from peerloom.errors import FailedPreconditionError, InvalidArgumentError, NotFoundError, PeerloomError
from peerloom.kit.checks import check_range
from peerloom.kit.clock import Clock
from peerloom.testing import service_wiring
from peerloom.testing.driven_loop import DrivenLoop, DrivenThread
from peerloom.testing.memory_replicas import dialer_of
from peerloom.testing.model_script import ModelScript, ModelScripts
from peerloom.testing.process_globals import seeded, silent, untraced
from peerloom.testing.scripted_computing import ScriptedMachine
from peerloom.testing.scripted_starter import is_worker
from peerloom.testing.simulated_processes import Main, MemoryWorld, Process, ProcessRun
from peerloom.testing.told_evidence import TrackRecord, tell_evidence
from peerloom.testing.told_history import History
from peerloom.testing.told_load import check_shares, load_message
from peerloom.testing.training_script import Scripts, TrainingScript

T = TypeVar("T")
SERVICES = {"registry": "10.0.0.1", "selector": "10.0.0.2", "trainer": "10.0.0.3"}
_CLIENT, _CLIENT_HOST = "client", "10.0.9.1"
_POLL_S = 0.05
_AGENT_PORT = 7403


class InMemorySystem:
    """Registry, selector, trainer and agents of this process alone; use it as a context manager, or close it.

    No socket, no process, no thread but one, and no time passes but while a client or one of these verbs
    waits: then it jumps from one event to the next. With the same `seed` the same calls find the same ids,
    choices and times. Begins with `nodes` nodes, "node1" and so on, of `slots` slots and an owner each.
    Workers follow `script`, or that of their task (`script_task`), models `model` (`script_model`); they
    compute nothing. At most `queue_samples` inputs wait at a node, from 1 on; with `computes_here` clients
    could run models themselves. A wait that nothing ends fails after `limit_s` of the system's seconds, by
    DeadlineError. At most one such system is open at a time: raises FailedPreconditionError.
    """

    def __init__(
        self,
        nodes: int = 2,
        *,
        slots: int = 1,
        seed: int = 0,
        script: TrainingScript | None = None,
        model: ModelScript | None = None,
        queue_samples: int = 8192,
        computes_here: bool = False,
        limit_s: float = 600.0,
    ) -> None:
        check_range("nodes", nodes, 0, 100)
        check_range("queue_samples", queue_samples, 1, 10**9)
        check_range("limit_s", limit_s, 1.0, 1e6)
        self._opened = ExitStack()
        self._owners: dict[str, str] = {}
        self._queue_samples = queue_samples
        self._names = [*SERVICES]
        try:
            self._open(seed, limit_s, script, computes_here=computes_here)
            self._world.models = ModelScripts(model)
            names = [self._begin_node("", slots, "", {}) for _ in range(nodes)]
            self._wait(self._until_served())
            for name in names:
                self._wait(self._until_node_is(name, "alive"))
        except BaseException:
            self.close()
            raise

    def _open(self, seed: int, limit_s: float, script: TrainingScript | None, *, computes_here: bool) -> None:
        self._opened.enter_context(seeded(seed))
        self._opened.enter_context(silent())
        self._opened.enter_context(untraced())
        folder = self._opened.enter_context(TemporaryDirectory(prefix="peerloom-in-memory-"))
        service_wiring.prepare_databases()
        self._loop = DrivenLoop(limit_s)
        self._world = MemoryWorld.create(seed, Path(folder), History(), self._loop)
        self._world.scripts = Scripts(script)
        self._opened.callback(self._end)
        mains: tuple[Main, ...] = (service_wiring.registry, service_wiring.selector, service_wiring.trainer)
        for (name, host), main in zip(SERVICES.items(), mains, strict=True):
            self._world.add(name, host, main)
        self._world.add(_CLIENT, _CLIENT_HOST, _wait_for_ever)
        self._own = DrivenThread(self._loop)
        for process in self._world.processes.values():
            self._now(process.start)
        self.clock: Clock = service_wiring.VirtualClock(self._loop)
        self.transport = TransportSeam(
            dial=lambda identity: dialer_of(self._run_of(_CLIENT)),
            clock=self.clock,
            chance=random.Random(f"{seed}/clients"),
            loop_thread=lambda: DrivenThread(self._loop),
            address=Address(service_wiring.REGISTRY, "the system in memory"),
            trace=lambda: None,
            local_machine=lambda clock: ScriptedMachine(self._world, computes=computes_here),
        )
        self._asking = AsyncClient(transport=self.transport)

    def client(self) -> Client:
        """A client of this system, without async."""
        return Client(transport=self.transport)

    def async_client(self) -> AsyncClient:
        """One for coroutines, which `run` runs."""
        return AsyncClient(transport=self.transport)

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Runs a coroutine on the system's own time, its sleeps too, and returns its result."""
        return self._wait(coroutine)

    def serves_all_clients(self) -> AbstractContextManager[None]:
        """While this lasts `peerloom.Client()` is one of this system: for code that makes its own."""
        return use_transport(self.transport)

    def script_task(self, task: str, script: TrainingScript) -> None:
        """How trainings of a task go from now on."""
        self._world.scripts.by_task[task] = script

    def script_model(self, task: str, script: ModelScript) -> None:
        """How models of a task answer from now on; what they take is in their files, from their training."""
        self._world.models.by_task[task] = script

    def add_node(
        self,
        name: str = "",
        *,
        slots: int = 1,
        owner: str = "",
        labels: Mapping[str, str] | None = None,
        record: TrackRecord | None = None,
    ) -> str:
        """A node joins; returns its name ("": a new one) when it is alive.

        Nodes of one `owner` share a host, by which the selector tells owners where there is no door. With a
        `record` the selector is told evidence, from which its belief comes. Raises InvalidArgumentError for
        a name that is taken.
        """
        made = self._begin_node(name, slots, owner, labels or {})
        self._wait(self._until_node_is(made, "alive"))
        if record is not None:
            self.tell_record(made, record)
        return made

    def tell_record(self, node: str, record: TrackRecord) -> None:
        """Tells the selector evidence about a node, as nodes and trainers would."""
        self._wait(tell_evidence(self._asking, dialer_of(self._run_of(_CLIENT)), node, record, self.clock))

    def set_load(self, node: str, load: MachineLoad) -> None:
        """A node's machine is so busy from now on; returns when its agent has told the registry.

        Until this is called a node says nothing of it, as an older agent. Raises InvalidArgumentError for
        parts that aren't from 0 to 1.
        """
        self._process(node)
        check_shares(load)
        self._world.loads[node] = load_message(load)
        self._wait(self._until_load_is(node, load))

    def kill(self, name: str) -> None:
        """A node, or "registry", "selector" or "trainer", dies at once, and says nothing; its disk stays."""
        self._now(partial(self._process(name).kill, "a test"))

    def leave(self, node: str) -> None:
        """A node says goodbye, and is gone: jobs hand its work over, at most for a few seconds."""
        process = self._process(node)
        process.restarts = False
        self._wait(_leave(process))

    def start(self, name: str) -> None:
        """What died or left comes back with its disk; returns when it is there."""
        process = self._process(name)
        process.restarts = True
        self._now(process.start)
        self._wait(self._until_served() if name in SERVICES else self._until_node_is(name, "alive"))

    def freeze(self, name: str) -> None:
        """A node or service stops in mid-work, and answers nothing, until `thaw`; its workers go on."""
        for run in self._answering(name):
            self._now(run.freeze)

    def thaw(self, name: str) -> None:
        """What was frozen goes on."""
        for run in self._answering(name):
            self._now(run.thaw)

    def advance(self, seconds: float) -> None:
        """Lets so much of the system's time pass, 0 or more."""
        check_range("seconds", seconds, 0.0, self._loop.limit_s)
        self._wait(asyncio.sleep(seconds))

    def wait_for_node(self, node: str, state: str) -> None:
        """Lets time pass until the registry says that a node is "alive", "suspect", "dead" or "left"."""
        self._wait(self._until_node_is(node, state))

    def close(self) -> None:
        """Ends everything; its clients and handles fail from now on. A second close does nothing."""
        self._opened.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _end(self) -> None:
        if self._loop.thread.is_alive():
            self._wait(self._world.unwind())
        self._loop.end_all()
        self._world.close()

    def _begin_node(self, name: str, slots: int, owner: str, labels: Mapping[str, str]) -> str:
        check_range("slots", slots, 0, 1024)
        number = len(self._names) - len(SERVICES) + 1
        name = name or f"node{number}"
        if name in self._world.processes:
            raise InvalidArgumentError.of_field("name", name, "a name that no node or service has")
        self._names.append(name)
        host = self._owners.setdefault(owner or f"the owner of {name}", f"10.0.1.{number}")
        main = partial(
            service_wiring.node_agent,
            slots=slots,
            address=f"{host}:{_AGENT_PORT + number}",
            labels=labels,
            queue_samples=self._queue_samples,
        )
        process = self._world.add(name, host, main)
        self._now(process.start)
        return name

    async def _until_served(self) -> None:
        while True:
            try:
                found = await self._asking.services()
            except PeerloomError:
                found = []  # the registry is starting
            if {service.name for service in found if service.healthy} == SERVICES.keys():
                return
            await asyncio.sleep(_POLL_S)

    async def _until_node_is(self, name: str, state: str) -> None:
        while name not in [node.name for node in await self._asking.nodes(states=[state])]:
            await asyncio.sleep(_POLL_S)

    async def _until_load_is(self, name: str, load: MachineLoad) -> None:
        while (await self._asking.node(name)).load != load:
            await asyncio.sleep(_POLL_S)

    def _process(self, name: str) -> Process:
        if name not in self._names:
            raise NotFoundError.of_name("node or service", name, self._names)
        return self._world.processes[name]

    def _answering(self, name: str) -> list[ProcessRun]:
        """A node or service, and what answers for it beside it."""
        run = self._run_of(name)
        beside = [child.run for child in run.children if not is_worker(child) and child.run is not None]
        return [run, *beside]

    def _run_of(self, name: str) -> ProcessRun:
        run = self._world.processes[name].run if name == _CLIENT else self._process(name).run
        if run is None:
            raise FailedPreconditionError(f"{name} doesn't run: start it first.")
        return run

    def _now(self, work: Callable[[], None]) -> None:
        async def do() -> None:
            work()

        if self._loop.is_own_thread():
            work()
        else:
            self._wait(do())

    def _wait(self, coroutine: Coroutine[Any, Any, T]) -> T:
        return self._own.run(coroutine)


async def _wait_for_ever(run: ProcessRun) -> None:
    await asyncio.Event().wait()


async def _leave(process: Process) -> None:
    run = process.run
    if run is not None and run.stop is not None:
        run.context.run(run.stop)
        while process.is_running:
            await asyncio.sleep(_POLL_S)
