"""Hands the real services what the simulation has in place of a machine: time, network, disks, processes.

All that the simulation knows of the inside of a service stands here.
"""

import dataclasses
import random
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

from peerloom.artifacts.store import ArtifactStore
from peerloom.inference.server import serving
from peerloom.inference.server.config import InferenceConfig
from peerloom.kit.database import Database
from peerloom.kit.directory import Directory
from peerloom.kit.lease import Lease
from peerloom.kit.liveness import ProcessIdentity
from peerloom.kit.runtime import Runtime
from peerloom.kit.same_system import stand_by_in
from peerloom.kit.server import Endpoint, Server
from peerloom.kit.standby import serve_with_lease
from peerloom.sandbox.kernel_support import SandboxSupport
from peerloom.services.node_agent import __main__ as node_agent_main
from peerloom.services.node_agent.agent_runtime import AgentRuntime
from peerloom.services.node_agent.config import NodeConfig
from peerloom.services.node_agent.inference_process import InferenceServer, ReachedAt
from peerloom.services.node_agent.owner.inventory import LentMachine
from peerloom.services.node_agent.owner.policy import HostUsage
from peerloom.services.registry import __main__ as registry_main
from peerloom.services.registry.config import RegistryConfig
from peerloom.services.selector import __main__ as selector_main
from peerloom.services.selector.config import SelectorConfig
from peerloom.services.trainer import __main__ as trainer_main
from peerloom.services.trainer.config import TrainerConfig
from peerloom.services.trainer.jobs.sample_ledger import judge
from peerloom.testing.memory_databases import MigratedDatabase, open_in_memory, prepare
from peerloom.testing.memory_replicas import dialer_of
from peerloom.testing.memory_server import MemoryServer
from peerloom.testing.scripted_computing import ScriptedComputing
from peerloom.testing.scripted_evaluator import ScriptedEvaluator
from peerloom.testing.scripted_inference import ScriptedInference
from peerloom.testing.scripted_starter import ScriptedStarter
from peerloom.testing.simulated_processes import MemoryWorld, ProcessRun
from peerloom.testing.virtual_loop import VirtualLoop, current_run
from peerloom.v1.common_pb2 import Accelerator, MachineSpeed
from peerloom.v1.registry_pb2 import MachineLoad
from peerloom.v1.trainer_pb2 import Job

REGISTRY, SELECTOR, TRAINER = "10.0.0.1:7400", "10.0.0.2:7401", "10.0.0.3:7402"
# A second process of each, on the same database; the registry's addresses are then given as a list.
STANDBYS = {"registry": "10.0.0.5:7400", "selector": "10.0.0.4:7401", "trainer": "10.0.0.6:7402"}
REGISTRIES = f"{REGISTRY},{STANDBYS['registry']}"
REGISTRY_CONFIG = RegistryConfig(
    listen=REGISTRY, heartbeat_interval_s=0.5, suspect_after_s=2.0, dead_after_s=5.0, restart_grace_s=2.5
)
SELECTOR_CONFIG = SelectorConfig(listen=SELECTOR, registry=REGISTRY)
TRAINER_CONFIG = TrainerConfig(
    listen=TRAINER,
    registry=REGISTRY,
    request_timeout_s=2.0,
    start_timeout_s=10.0,
    reconnect_timeout_s=4.0,
    agent_timeout_s=1.0,
    checkpoint_interval_s=0.5,
    collective_timeout_s=20.0,
    transfer_timeout_s=15.0,
)
NODE_CONFIG = NodeConfig(
    registry=REGISTRY,
    artifact_limit_bytes=10**9,
    bulk_transfers=False,
    handover_grace_s=3.0,
    reservation_s=5.0,
    inference=False,
    measure_interval_s=0.0,
)
WALL_S = 1_700_000_000.0


class VirtualClock:
    """Both times are the loop's; the wall's may be `ahead_s` of the right one, as a machine's may be."""

    def __init__(self, loop: VirtualLoop, ahead_s: float = 0.0) -> None:
        self._loop, self._ahead_s = loop, ahead_s

    def wall_s(self) -> float:
        """Seconds since 1970."""
        return WALL_S + self._ahead_s + self._loop.time()

    def monotonic_s(self) -> float:
        """Seconds since the history began."""
        return self._loop.time()


def clock_of(world: MemoryWorld, host: str) -> VirtualClock:
    """The clock of a machine."""
    return VirtualClock(world.loop, world.ahead_s.get(host, 0.0))


class ScriptedLoad:
    """A machine that is as busy as a test said; before that nobody knows."""

    def __init__(self, run: ProcessRun) -> None:
        self._run = run

    async def look(self) -> MachineLoad | None:
        """As it was said last."""
        return self._run.world.loads.get(self._run.name)


class QuietMachine:
    """An owner who does nothing else with the machine."""

    async def look(self) -> HostUsage:
        """What others do."""
        return HostUsage(12 * 60, 0.0, None)

    async def memory_of(self, pids: Any) -> dict[int, int]:
        """Nobody grows."""
        return {}

    def available_bytes(self) -> int:
        """Enough."""
        return 10**10


def prepare_databases() -> None:
    """Migrates one database of each kind, once and for all histories."""
    for name, main in (("registry", registry_main), ("selector", selector_main), ("trainer", trainer_main)):
        prepare(name, main.MIGRATIONS)


async def registry(run: ProcessRun, listen: str = REGISTRY, config: RegistryConfig = REGISTRY_CONFIG) -> None:
    """As the registry's main."""
    config = dataclasses.replace(config, listen=listen)
    await _serve(run, listen, "registry", registry_main, partial(registry_main.serve, config))


async def selector(run: ProcessRun, listen: str = SELECTOR, registry: str = REGISTRY) -> None:
    """As the selector's main."""
    config = dataclasses.replace(SELECTOR_CONFIG, listen=listen, registry=registry)
    await _serve(run, listen, "selector", selector_main, partial(selector_main.serve, config), registry)


async def trainer(run: ProcessRun, listen: str = TRAINER, registry: str = REGISTRY) -> None:
    """As the trainer's main."""
    state = str(run.process.disk.folder)
    config = dataclasses.replace(TRAINER_CONFIG, listen=listen, registry=registry, state=state)

    async def serve(server: Server, database: Database, runtime: Runtime) -> None:
        artifacts = ArtifactStore(run.process.disk.folder / "artifacts", 10**9)
        await trainer_main.serve(config, server, database, runtime, artifacts, "", ScriptedEvaluator(run))

    await _serve(run, listen, "trainer", trainer_main, serve, registry)


async def node_agent(
    run: ProcessRun,
    slots: int,
    address: str = "",
    labels: Mapping[str, str] | None = None,
    registry: str = REGISTRY,
    queue_samples: int = 0,
) -> None:
    """As the agent's main; with `queue_samples`, which then may wait at it, it answers with models, too."""
    address, state = address or f"{run.host}:7403", run.process.disk.folder
    state.mkdir(parents=True, exist_ok=True)
    told = tuple(f"{name}={value}" for name, value in (labels or {}).items())
    config = dataclasses.replace(
        NODE_CONFIG,
        listen=address,
        registry=registry,
        state=str(state),
        name=run.name,
        slots=slots,
        labels=told,
        inference=queue_samples > 0,
    )

    async def measure_speed() -> MachineSpeed:
        return MachineSpeed(matmul_gflops=10.0)

    accelerators = (Accelerator(kind="cpu", model="simulated", count=1),)
    runtime = AgentRuntime(
        clock=clock_of(run.world, run.host),
        dialer=dialer_of(run),
        machine=LentMachine(slots, "cpu", accelerators, 10**9, 1, lambda: True),
        starter=ScriptedStarter(run),
        meter=QuietMachine(),
        load_meter=ScriptedLoad(run),
        measure_speed=measure_speed,
        sandbox=SandboxSupport(7, seccomp=True),
        chance=_chance(run),
        open_inference=partial(_inference, run, queue_samples),
    )
    async with _server(
        run, address, ("peerloom.v1.NodeAgentService", "peerloom.v1.ArtifactService")
    ) as server:
        run.stop = server.stop
        await node_agent_main.serve(config, server, runtime)


def _inference(agent: ProcessRun, queue_samples: int, address: str, reached_at: ReachedAt) -> InferenceServer:
    """The inference server beside an agent; its process does what the server's main does."""

    async def serve(run: ProcessRun, folder: Path, tell_port: Callable[[int], None]) -> None:
        config = InferenceConfig(
            listen=f"{run.host}:0",
            folder=str(folder),
            agent=address,
            registry=REGISTRY,
            queue_samples=queue_samples,
        )
        server, dialer = _server(run, config.listen, serving.SERVICES), dialer_of(run)
        run.stop = server.stop
        tell_port(int(server.address.rpartition(":")[2]))
        computing = ScriptedComputing(run.world, agent.name)
        await serving.serve(config, server, dialer, clock_of(run.world, run.host), computing)

    return ScriptedInference(agent, serve, reached_at)


def _chance(run: ProcessRun) -> random.Random:
    return random.Random(f"{run.world.seed}/{run.name}/{run.number}")


def _server(run: ProcessRun, listen: str, services: tuple[str, ...]) -> Server:
    def open_(interceptors: Any, **_: object) -> Any:
        return MemoryServer(run.world.network, run, interceptors)

    return Server(Endpoint(listen, allow_plain=True), services, open_, say=lambda _, **__: None)


async def _serve(
    run: ProcessRun,
    listen: str,
    name: str,
    main: ModuleType,
    serve: Callable[[Server, Database, Runtime], Awaitable[None]],
    registry: str = "",
) -> None:
    """What the main of a service with a database does: its SERVICES, by `serve`, under the lease.

    One that has a `registry` tells it that it stands by.
    """
    disk = run.process.disk
    engine = open_in_memory(disk, name, main.MIGRATIONS)
    database = MigratedDatabase(engine, name, is_remote=bool(disk.database_host))
    runtime = Runtime(clock_of(run.world, run.host), dialer_of(run), chance=_chance(run))
    server = _server(run, listen, main.SERVICES)
    run.stop = server.stop

    async def stand_by() -> None:
        async with Directory(runtime.dialer, registry) as directory:
            await stand_by_in(directory, database, main.KIND, listen)

    await serve_with_lease(
        server,
        database,
        runtime.clock,
        main.MIGRATIONS,
        lambda clock: serve(server, database, dataclasses.replace(runtime, clock=clock)),
        stand_by if registry else None,
        make_lease=lease_of_this_run,
    )


def lease_of_this_run(database: Database, clock: Any, place: str = "") -> Lease:
    """What kit/standby makes in a simulation: the lease of a process that the simulation knows."""
    run: Any = current_run.get()

    def is_dead(process: ProcessIdentity) -> bool:
        known = run.world.processes.get(process.host)
        is_in_sight = known is not None and known.host == run.host  # as a process of another machine isn't
        return is_in_sight and (known.run is None or known.run.number != process.pid)

    def read_time_s(_: object) -> float | None:
        host = run.process.disk.database_host
        return clock_of(run.world, host).wall_s() if host else None

    identity = ProcessIdentity(run.name, "", "", run.number, "")
    return Lease(database, clock, place, identity, is_dead, read_time_s)


def sample_verdict(job: Job) -> tuple[bool, str]:
    """Whether a job's ledger says that each sample was used once, and that in words."""
    return judge(job.ledger, job.spec.epochs)
