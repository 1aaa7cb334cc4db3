"""Every background task of every service has an owner.

Each real service is served within the test, on a real database and real sockets, once for each of its tasks.
The task is ended from inside: health says NOT_SERVING, the log names the task, and the service stops in order
with the error that gives the process exit status 1.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from structlog.testing import capture_logs

from peerloom.artifacts.store import ArtifactStore
from peerloom.kit import server as server_module
from peerloom.kit.channel import open_channel
from peerloom.kit.clock import Clock, SystemClock
from peerloom.kit.database import Database, connect_database
from peerloom.kit.dialing import Dialer
from peerloom.kit.runtime import Runtime
from peerloom.kit.server import Endpoint, Server
from peerloom.kit.standby import serve_with_lease
from peerloom.kit.tasks import BackgroundTaskError
from peerloom.services.node_agent import __main__ as node_agent
from peerloom.services.node_agent.agent_runtime import AgentRuntime, look_at_machine
from peerloom.services.node_agent.config import NodeConfig
from peerloom.services.registry import __main__ as registry
from peerloom.services.registry.config import RegistryConfig
from peerloom.services.selector import __main__ as selector
from peerloom.services.selector.config import SelectorConfig
from peerloom.services.trainer import __main__ as trainer
from peerloom.services.trainer.config import TrainerConfig
from peerloom.services.trainer.models.evaluator_process import EvaluatorProcess
from peerloom.v1.common_pb2 import MachineSpeed

LIMIT_S = 60.0
LOOPBACK = "127.0.0.1:0"
SERVING = health_pb2.HealthCheckResponse.SERVING
NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING
OF_ALL = {"health", "end of health"}
OF_STORED = OF_ALL | {"lease", "end of streams"}
TASKS = {
    "registry": OF_STORED | {"commit queue", "failure detector", "retention"},
    "selector": OF_ALL | {"lease", "follower", "announcement"},
    "trainer": OF_STORED
    | {"jobs", "commit queue", "event retention", "evaluator", "evidence", "announcement"}
    | {"leading services"},
    "node_agent": OF_ALL
    | {"artifact advertising", "artifact uses", "evidence", "leaving", "load", "measuring", "owner policy"}
    | {"leader discovery", "registration", "worker pool", "worker starter", "worker certificates", "way in"},
}
ONCE = {"own system"}  # returns when it is done, whenever that is

Serve = Callable[[Server, Path, str], Awaitable[None]]


async def serve_registry(server: Server, folder: Path, registry_address: str) -> None:
    config = RegistryConfig(listen=LOOPBACK, state=str(folder))
    serve = partial(registry.serve, config, server)
    await _serve_stored(server, config.database_url(), "registry", registry.MIGRATIONS, serve)


async def serve_selector(server: Server, folder: Path, registry_address: str) -> None:
    config = SelectorConfig(listen=LOOPBACK, state=str(folder), registry=registry_address)
    serve = partial(selector.serve, config, server)
    await _serve_stored(server, config.database_url(), "selector", selector.MIGRATIONS, serve)


async def serve_trainer(server: Server, folder: Path, registry_address: str) -> None:
    config = TrainerConfig(listen=LOOPBACK, state=str(folder), registry=registry_address)

    async def serve(database: Database, runtime: Runtime) -> None:
        artifacts = ArtifactStore(folder / "artifacts", config.model_limit_bytes)
        await trainer.serve(config, server, database, runtime, artifacts, "127.0.0.1", EvaluatorProcess())

    await _serve_stored(server, config.database_url(), "trainer", trainer.MIGRATIONS, serve)


async def serve_node_agent(server: Server, folder: Path, registry_address: str) -> None:
    async def measure_nothing() -> MachineSpeed:
        return MachineSpeed(matmul_gflops=1.0)

    await asyncio.to_thread(folder.mkdir)  # as the lock does that main takes
    config = NodeConfig(state=str(folder), registry=registry_address, keep_warm=False, inference=False)
    found = await look_at_machine(config, None)
    runtime = AgentRuntime(**{**found.__dict__, "measure_speed": measure_nothing})
    await node_agent.serve(config, server, runtime)


async def _serve_stored(
    server: Server, url: str, service: str, migrations: str, serve: Callable[..., Awaitable[None]]
) -> None:
    database = connect_database(url, service)

    async def lead(clock: Clock) -> None:
        await serve(database=database, runtime=Runtime(clock, Dialer()))

    await serve_with_lease(server, database, SystemClock(), migrations, lead)


SERVES: dict[str, tuple[tuple[str, ...], Serve]] = {
    "registry": (registry.SERVICES, serve_registry),
    "selector": (selector.SERVICES, serve_selector),
    "trainer": (trainer.SERVICES, serve_trainer),
    "node_agent": (node_agent.SERVICES, serve_node_agent),
}


class Served:
    """A service that serves; `health` gives each status once it changes."""

    def __init__(self, server: Server, serving: "asyncio.Task[None]", health: Any) -> None:
        self.server = server
        self.serving = serving
        self.health = health

    async def becomes(self, status: int) -> None:
        """Waits for that health; what ends the service before is raised."""
        reading = asyncio.create_task(self._read_until(status))
        await asyncio.wait({reading, self.serving}, return_when=asyncio.FIRST_COMPLETED)
        if not reading.done():
            reading.cancel()
            await self.serving
        await reading

    async def _read_until(self, status: int) -> None:
        while (await self.health.read()).status != status:
            pass


@asynccontextmanager
async def served(service: str, folder: Path, registry_address: str = "") -> AsyncIterator[Served]:
    """A service that has become healthy; stopped, if it is still there, at the end."""
    services, serve = SERVES[service]
    server = Server(Endpoint(LOOPBACK), services)
    serving = asyncio.create_task(serve(server, folder, registry_address))  # type: ignore[arg-type]  # all coroutines
    async with asyncio.timeout(LIMIT_S), open_channel(server.address) as channel:
        request = health_pb2.HealthCheckRequest(service=services[0])
        watch = health_pb2_grpc.HealthStub(channel).Watch(request, wait_for_ready=True)
        one = Served(server, serving, watch)
        await one.becomes(SERVING)
        yield one
        watch.cancel()
        server.stop()
        with suppress(BackgroundTaskError):
            await serving


@pytest.fixture
async def registry_address(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[str]:
    """Where a registry serves that nobody harms."""
    monkeypatch.setattr(server_module, "PROBE_INTERVAL_S", 0.02)
    async with served("registry", tmp_path / "unharmed") as one:
        yield one.server.address


@pytest.mark.parametrize(
    ("service", "task"), [(service, task) for service, tasks in TASKS.items() for task in sorted(tasks)]
)
async def test_a_task_that_ends_is_seen_by_health_and_log_and_stops_the_service_in_order(
    service: str, task: str, tmp_path: Path, registry_address: str
) -> None:
    with capture_logs() as logs:
        async with served(service, tmp_path / "harmed", registry_address) as one:
            one.server.running_tasks[task].cancel()
            await one.becomes(NOT_SERVING)
            one.health.cancel()
            with pytest.raises(BackgroundTaskError, match=f"'{task}' was cancelled"):
                await one.serving
    ended = [log["task"] for log in logs if log["event"] == "background_task_ended"]
    assert ended == [task]
    assert "service_stopped" in [log["event"] for log in logs]


@pytest.mark.parametrize("service", TASKS)
async def test_the_tasks_above_are_all_there_are_and_end_quietly_with_the_service(
    service: str, tmp_path: Path, registry_address: str
) -> None:
    with capture_logs() as logs:
        async with served(service, tmp_path / "unharmed too", registry_address) as one:
            assert set(one.server.running_tasks) - ONCE == TASKS[service]
            one.health.cancel()
            one.server.stop()
            await one.serving
    assert [log for log in logs if log["event"] == "background_task_ended"] == []
