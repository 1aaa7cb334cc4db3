"""A service that stores something serves while it holds the lease, stands by before, stops once deposed."""

import asyncio
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from databases import new_database
from grpc_health.v1 import health_pb2, health_pb2_grpc
from structlog.testing import capture_logs

from peerloom.errors import UnavailableError
from peerloom.kit.channel import open_channel
from peerloom.kit.clock import Clock, ManualClock, SystemClock
from peerloom.kit.database import connect_database
from peerloom.kit.lease import Lease
from peerloom.kit.liveness import ProcessIdentity
from peerloom.kit.server import LIVE, Endpoint, Server
from peerloom.kit.standby import serve_with_lease
from peerloom.kit.status import error_from_rpc
from peerloom.kit.tasks import BackgroundTaskError
from peerloom.v1 import registry_pb2, registry_pb2_grpc

NAME = registry_pb2.DESCRIPTOR.services_by_name["RegistryService"].full_name
SERVING = health_pb2.HealthCheckResponse.SERVING
NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING
ELSEWHERE = ProcessIdentity("elsewhere", "a-boot", "a-namespace", 7, "12345")
LIMIT_S = 60.0
MIGRATION = '''
"""Notes."""
import sqlalchemy as sa
from alembic import op
revision, down_revision = "tester_0001", None

def upgrade():
    op.create_table("notes", sa.Column("text", sa.String, primary_key=True))
'''


class Nodes(registry_pb2_grpc.RegistryServiceServicer):
    """Answers with the node that it is asked for; for "nobody" it looks for ever."""

    def __init__(self) -> None:
        self.looks = asyncio.Event()

    async def GetNode(self, request: Any, context: Any) -> registry_pb2.GetNodeResponse:  # noqa: N802  # the schema's
        if request.node == "nobody":
            self.looks.set()
            await asyncio.Event().wait()
        return registry_pb2.GetNodeResponse(node=registry_pb2.Node(node_id=request.node))


class Service:
    """A whole small service on one database; `run` ends when it does."""

    def __init__(self, url: str, migrations: Path) -> None:
        self.server = Server(Endpoint("127.0.0.1:0"), [NAME])
        self.database = connect_database(url, "tester")
        self.nodes = Nodes()
        self._migrations = str(migrations)

    async def run(self) -> None:
        await serve_with_lease(self.server, self.database, SystemClock(), self._migrations, self._serve)

    async def _serve(self, clock: Clock) -> None:
        self.server.add_servicer(registry_pb2_grpc.add_RegistryServiceServicer_to_server, self.nodes)
        await self.server.start({})
        await self.server.serve_until_stopped()

    async def becomes(self, status: int, name: str = NAME) -> None:
        """Returns once health says so of that name."""
        async with open_channel(self.server.address) as channel:
            watch = health_pb2_grpc.HealthStub(channel).Watch(
                health_pb2.HealthCheckRequest(service=name), wait_for_ready=True
            )
            while (await watch.read()).status != status:
                pass
            watch.cancel()

    async def call(self, node: str = "ada", *, retries: bool = True) -> str:
        """Asks for a node; raises our exceptions."""
        async with open_channel(self.server.address, retries=retries) as channel:
            stub = registry_pb2_grpc.RegistryServiceStub(channel)
            try:
                answer = await stub.GetNode(registry_pb2.GetNodeRequest(node=node), wait_for_ready=True)
            except Exception as error:
                raise error_from_rpc(error, self.server.address, "registry") from None
            return str(answer.node.node_id)


@asynccontextmanager
async def running(service: Service) -> AsyncIterator[asyncio.Task[None]]:
    task = asyncio.create_task(service.run())
    try:
        async with asyncio.timeout(LIMIT_S):
            yield task
    finally:
        service.server.stop()
        with suppress(BackgroundTaskError):
            await task


@pytest.fixture(params=["file", "postgresql"])
def make(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Callable[[], Service]]:
    """Makes services on one new database."""
    (tmp_path / "migrations").mkdir()
    (tmp_path / "migrations" / "0001_first.py").write_text(MIGRATION)
    with new_database(request.param, tmp_path) as url:
        yield lambda: Service(url, tmp_path / "migrations")


async def test_the_second_says_who_holds_the_lease_and_serves_once_the_first_has_stopped(
    make: Callable[[], Service], capsys: pytest.CaptureFixture[str]
) -> None:
    first, second = make(), make()
    async with running(first) as serving:
        await first.becomes(SERVING)
        async with running(second):
            await second.becomes(NOT_SERVING)
            await second.becomes(SERVING, LIVE)
            with pytest.raises(UnavailableError, match="stands by; the tester at 127") as refused:
                await second.call()
            assert refused.value.reason == "STANDS_BY"
            assert first.server.address in refused.value.message
            assert "standing by: the tester at" in capsys.readouterr().err
            assert await first.call() == "ada"
            first.server.stop()
            await serving
            await second.becomes(SERVING)
            assert await second.call() == "ada"


async def test_a_standby_that_is_told_to_stop_has_served_nothing(make: Callable[[], Service]) -> None:
    first, second = make(), make()
    async with running(first):
        await first.becomes(SERVING)
        async with running(second) as standing_by:
            await second.becomes(NOT_SERVING)
            second.server.stop()
            await standing_by
        assert await first.call() == "ada"


async def test_whoever_loses_the_lease_stops_in_order_and_says_why(
    make: Callable[[], Service], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("peerloom.kit.lease.BEAT_INTERVAL_S", 0.01)
    service, thief = make(), make()
    with capture_logs() as logs:
        async with running(service) as serving:
            await service.becomes(SERVING)
            with thief.database.engine.begin() as connection:
                connection.execute(sa.text("UPDATE service_leases SET epoch = epoch + 1"))
            with pytest.raises(BackgroundTaskError, match="'lease' failed: This process does not hold"):
                await serving
    ended = next(log for log in logs if log["event"] == "background_task_ended")
    assert (ended["task"], ended["exc_info"].reason) == ("lease", "LEASE_LOST")
    thief.database.close()


async def test_whoever_cannot_renew_the_lease_stops_and_ends_the_calls_under_way(
    make: Callable[[], Service],
) -> None:
    service, other = make(), make()
    service.database.is_remote = True
    async with running(service) as serving:
        await service.becomes(SERVING)
        under_way = asyncio.create_task(service.call("nobody", retries=False))
        await service.nodes.looks.wait()
        with other.database.engine.begin() as connection:
            connection.execute(sa.text("UPDATE service_leases SET holder = holder"))
            with pytest.raises(UnavailableError):
                await under_way
        with pytest.raises(BackgroundTaskError, match=r"'lease' failed: .* could not renew it for 2 s"):
            await serving
    assert service.database.epoch == 0, "it may not write"
    other.database.close()


async def test_who_lets_go_refuses_calls_with_its_reason(
    make: Callable[[], Service], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("peerloom.kit.server.LETTING_GO_S", LIMIT_S)  # as long as anybody asks here
    service = make()
    async with service.server:
        service.server.add_servicer(registry_pb2_grpc.add_RegistryServiceServicer_to_server, service.nodes)
        await service.server.start({})
        assert await service.call() == "ada"
        service.server.let_go(service.database.lapsed())
        await service.becomes(NOT_SERVING)
        with pytest.raises(UnavailableError, match="another may take it") as refused:
            await service.call()
        assert refused.value.reason == "LEASE_LOST"
    service.database.close()


async def test_who_lets_go_while_it_drains_ends_the_calls_under_way(
    make: Callable[[], Service], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("peerloom.kit.server.STOP_GRACE_S", 2 * LIMIT_S)
    service = make()
    async with running(service) as serving:
        await service.becomes(SERVING)
        under_way = asyncio.create_task(service.call("nobody", retries=False))
        await service.nodes.looks.wait()
        async with open_channel(service.server.address) as channel:
            watch = health_pb2_grpc.HealthStub(channel).Watch(health_pb2.HealthCheckRequest())
            assert (await watch.read()).status == SERVING
            service.server.stop()
            assert (await watch.read()).status == NOT_SERVING
            service.server.let_go(service.database.lapsed())
            with pytest.raises(UnavailableError):
                await under_way
            watch.cancel()
        await serving


async def test_who_lets_go_while_it_is_starting_never_serves(
    make: Callable[[], Service], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("peerloom.kit.server.LETTING_GO_S", LIMIT_S)
    service = make()
    async with service.server:
        service.server.let_go(service.database.lapsed())
        await service.server.start({})
        await service.becomes(NOT_SERVING)
        with pytest.raises(UnavailableError, match="another may take it"):
            await service.call()
    service.database.close()


async def test_the_tables_are_made_by_the_holder_only(make: Callable[[], Service]) -> None:
    holder, service = make(), make()
    lease = Lease(holder.database, ManualClock(), process=ELSEWHERE)
    assert (await lease.try_to_take()).may_take
    async with running(service):
        await service.becomes(NOT_SERVING)
        assert sa.inspect(service.database.engine).get_table_names() == ["service_leases", "service_systems"]
        await lease.release()
        await service.becomes(SERVING)
        assert "notes" in sa.inspect(service.database.engine).get_table_names()
    holder.database.close()


async def test_a_task_that_ends_stops_the_process_in_order(make: Callable[[], Service]) -> None:
    service = make()
    async with running(service) as serving:
        await service.becomes(SERVING)
        assert set(service.server.running_tasks) == {"lease", "health", "end of health"}
        async with open_channel(service.server.address) as channel:
            watch = health_pb2_grpc.HealthStub(channel).Watch(health_pb2.HealthCheckRequest())
            assert (await watch.read()).status == SERVING
            service.server.running_tasks["health"].cancel()
            assert (await watch.read()).status == NOT_SERVING
            watch.cancel()
        with pytest.raises(BackgroundTaskError, match="'health' was cancelled"):
            await serving


SCRIPT = """
from peerloom.kit.server import LIVE, Endpoint, Server, run

async def fail():
    raise ZeroDivisionError("by nothing")

async def main():
    async with Server(Endpoint("127.0.0.1:0"), []) as server:
        await server.start({})
        server.start_task("dividing", fail)
        await server.serve_until_stopped()

run(main)
"""


async def test_a_process_whose_task_ended_says_which_and_has_status_1() -> None:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", SCRIPT), stderr=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
    )
    _, told = await process.communicate()
    assert process.returncode == 1
    assert told.decode().splitlines()[-1] == "error: the background task 'dividing' failed: by nothing"
