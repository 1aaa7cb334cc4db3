"""Two processes of one service on one database: one serves, the other says who does and takes over after it.

All services of a test share the database, so this also shows that they can.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
from conftest import ServiceHandle, StartService
from databases import new_database
from grpc_health.v1 import health_pb2, health_pb2_grpc

from peerloom import AsyncClient
from peerloom.errors import UnavailableError
from peerloom.kit.channel import open_channel
from peerloom.kit.clock import ManualClock
from peerloom.kit.database import connect_database
from peerloom.kit.dialing import Dialer, RegistryPeer
from peerloom.kit.ids import new_request_id
from peerloom.kit.lease import Lease
from peerloom.kit.lease_table import note_system, read_lease
from peerloom.kit.liveness import ProcessIdentity
from peerloom.services import selector
from peerloom.v1 import registry_pb2, selector_pb2, trainer_pb2
from peerloom.v1.common_pb2 import MachineSpeed

LIMIT_S = 60.0
SERVING = health_pb2.HealthCheckResponse.SERVING
NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING
pytestmark = pytest.mark.timeout(240)


@pytest.fixture(params=["file", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    with new_database(request.param, tmp_path) as url:
        yield url


class Pair:
    """Two processes of a service: the first serves, the second was started when it did."""

    def __init__(self, start: Callable[[], ServiceHandle]) -> None:
        self.first, self.second = start(), start()

    async def check_standby(self, call: Callable[[str], Any]) -> None:
        """The second is there, serves nothing, and says whom it waits for."""
        assert await status_of(self.second.address) == NOT_SERVING
        with pytest.raises(UnavailableError, match="stands by; ") as refused:
            await call(self.second.address)
        holder = f"at {self.first.address} (process {self.first.process.pid} on "
        assert holder in refused.value.message
        assert refused.value.reason == "STANDS_BY"
        lines = self.second.log().splitlines()
        assert any(line.startswith("standing by: ") and holder in line for line in lines)
        assert any("standing_by" in line and holder in line for line in lines)

    async def take_over(self) -> None:
        """The first dies without a word; the second serves."""
        self.first.kill()
        await becomes(self.second.address, SERVING)


async def status_of(address: str) -> int:
    async with open_channel(address) as channel:
        answer = await health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest())
        return int(answer.status)


async def becomes(address: str, status: int) -> None:
    async with asyncio.timeout(LIMIT_S), open_channel(address) as channel:
        watch = health_pb2_grpc.HealthStub(channel).Watch(health_pb2.HealthCheckRequest())
        while (await watch.read()).status != status:
            pass
        watch.cancel()


@pytest.fixture
async def stack() -> AsyncIterator[AsyncExitStack]:
    async with AsyncExitStack() as opened:
        yield opened


def start_registry(start_service: StartService, url: str) -> ServiceHandle:
    # No node beats in the first two tests, and a slow machine must not make that look like a death.
    patience = ("--suspect-after-s", "300", "--dead-after-s", "600")
    return start_service("registry", "--database", url, *patience)


async def register(registry: RegistryPeer, name: str) -> str:
    spec = registry_pb2.NodeSpec(name=name, address="10.0.0.1:7500", slots=1, speed=MachineSpeed())
    request = registry_pb2.RegisterRequest(spec=spec, node_key="0" * 16, request_id=new_request_id())
    return str((await registry.call(registry.stub.Register, request)).node_id)


async def events_of(registry: RegistryPeer) -> list[tuple[int, str]]:
    request = registry_pb2.WatchNodesRequest(stop_at_present=True)
    stream = registry.stream(registry.stub.WatchNodes, request)
    return [(event.sequence, event.node.spec.name) async for event in stream]


async def test_of_two_registries_one_serves_and_the_other_goes_on_with_what_it_acknowledged(
    start_service: StartService, url: str, stack: AsyncExitStack
) -> None:
    pair = Pair(lambda: start_registry(start_service, url))
    first, second = [
        await stack.enter_async_context(Dialer().registry(one.address)) for one in (pair.first, pair.second)
    ]
    await register(first, "ada")
    await pair.check_standby(lambda address: events_of(second))
    await register(first, "bob")
    await pair.take_over()
    await register(second, "cid")
    assert await events_of(second) == [(1, "ada"), (2, "bob"), (3, "cid")]


async def test_of_two_selectors_one_counts_and_the_other_goes_on_with_what_was_counted(
    start_service: StartService, url: str, stack: AsyncExitStack
) -> None:
    registry_process = start_registry(start_service, url)
    registry = await stack.enter_async_context(Dialer().registry(registry_process.address))
    node_id = await register(registry, "ada")
    pair = Pair(lambda: start_service("selector", "--database", url, "--registry", registry_process.address))
    first, second = [
        await stack.enter_async_context(Dialer().selector(one.address)) for one in (pair.first, pair.second)
    ]
    fact = selector_pb2.Evidence(
        evidence_id="one", node_id=node_id, kind=selector_pb2.EVIDENCE_KIND_UNFINISHED
    )
    report = selector_pb2.ReportEvidenceRequest(evidence=[fact])
    answer = await first.call(first.stub.ReportEvidence, report)
    assert answer.applied == 1
    await pair.check_standby(lambda address: second.call(second.stub.ReportEvidence, report))
    await pair.take_over()
    assert (await second.call(second.stub.ReportEvidence, report)).applied == 0
    beliefs = await second.call(second.stub.ListBeliefs, selector_pb2.ListBeliefsRequest())
    assert [(belief.node_id, belief.updates) for belief in beliefs.beliefs] == [(node_id, 1)]


async def test_of_two_trainers_one_runs_the_job_and_writes_its_record(
    start_service: StartService, url: str, stack: AsyncExitStack, tmp_path: Path
) -> None:
    registry = start_service("registry", "--database", url).address
    start_service("selector", "--database", url, "--registry", registry)
    node = start_service(
        "node_agent", "--state", str(tmp_path / "node"), "--registry", registry, "--slots", "1"
    )
    await becomes(node.address, SERVING)
    state = str(tmp_path / "trainer")
    pair = Pair(lambda: start_service("trainer", "--database", url, "--state", state, "--registry", registry))
    first, second = [
        await stack.enter_async_context(Dialer().trainer(one.address)) for one in (pair.first, pair.second)
    ]
    spec = trainer_pb2.JobSpec(task="digits", epochs=100_000, request_budget=1)
    submit = trainer_pb2.SubmitJobRequest(spec=spec, request_id=new_request_id())
    job_id = (await first.call(first.stub.SubmitJob, submit)).job.job_id
    get = trainer_pb2.GetJobRequest(job_id=job_id)
    watched: list[int] = []
    steps = 0
    async with asyncio.timeout(LIMIT_S):
        async for event in first.stream(first.stub.WatchJob, trainer_pb2.WatchJobRequest(job_id=job_id)):
            watched.append(event.sequence)
            steps += event.HasField("step")
            if steps == 1:
                await pair.check_standby(lambda address: second.call(second.stub.GetJob, get))
            if steps == 100:
                break
    assert watched == list(range(1, len(watched) + 1))
    assert "job_resumed" not in pair.second.log()
    assert "commit_failed" not in pair.first.log()

    await pair.take_over()
    assert "job_resumed" in pair.second.log()
    request = trainer_pb2.WatchJobRequest(job_id=job_id)
    told: list[int] = []
    async with asyncio.timeout(LIMIT_S):
        async for event in second.stream(second.stub.WatchJob, request):
            told.append(event.sequence)
            if len(told) == len(watched):
                break
    assert told == watched


def state_of(service: str, folder: Path) -> tuple[str, ...]:
    """The trainer needs a folder, wherever its database is."""
    return ("--state", str(folder)) if service == "trainer" else ()


@pytest.mark.parametrize("service", ["selector", "trainer"])
async def test_a_service_of_another_system_does_not_stand_by_on_this_database(
    start_service: StartService, url: str, tmp_path: Path, service: str
) -> None:
    """By mistake: it would lead with another registry's nodes and jobs once the first is gone."""
    first = start_registry(start_service, url)
    other = start_service("registry", "--state", str(tmp_path / "other"))
    own = ("--database", url, "--registry", first.address, *state_of(service, tmp_path / "first"))
    leader = start_service(service, *own)
    await becomes(leader.address, SERVING)
    foreign = ("--database", url, "--registry", other.address, *state_of(service, tmp_path / "second"))
    stranger = start_service(service, *foreign)
    assert await asyncio.to_thread(stranger.process.wait, LIMIT_S) == 2
    assert f"the {service}'s database" in stranger.log()
    assert "is in use by another system" in stranger.log()
    assert other.address in stranger.log()
    assert await status_of(leader.address) == SERVING


async def test_a_leader_that_learns_of_its_registry_later_is_told_from_a_stranger_all_the_same(
    start_service: StartService, url: str, tmp_path: Path
) -> None:
    """The leader can't say whose it is before its registry answers; the stranger asks until it can."""
    first = start_registry(start_service, url)
    first.kill()
    leader = start_service("selector", "--database", url, "--registry", first.address)
    await becomes(leader.address, NOT_SERVING)
    await asyncio.to_thread(wait_until_led, url, "selector")
    other = start_service("registry", "--state", str(tmp_path / "other"))
    stranger = start_service("selector", "--database", url, "--registry", other.address)
    await is_known_to(other.address)
    start_service("registry", "--database", url, "--listen", first.address)
    assert await asyncio.to_thread(stranger.process.wait, LIMIT_S) == 2
    assert "is in use by another system" in stranger.log()


@pytest.mark.parametrize(("name", "told"), [("lab-b", "is of the system 'lab-b'"), ("", "without a name")])
async def test_a_registry_of_another_system_does_not_stand_by_on_this_database(
    start_service: StartService, url: str, name: str, told: str
) -> None:
    """By mistake: it would lead with the other system's nodes once that one is gone."""
    leader = start_service("registry", "--database", url, "--system", "lab-a")
    stranger = start_service("registry", "--database", url, *(("--system", name) if name else ()))
    assert await asyncio.to_thread(stranger.process.wait, LIMIT_S) == 2
    assert told in stranger.log()
    assert "is that of the system 'lab-a'" in stranger.log()
    assert "--system lab-a if it belongs there" in stranger.log()
    own = start_service("registry", "--database", url, "--system", "lab-a")
    await becomes(leader.address, SERVING)
    assert await status_of(own.address) == NOT_SERVING


async def test_a_registry_of_another_system_does_not_lead_on_what_was_left(
    start_service: StartService, url: str
) -> None:
    """The first leader with a name gives it to a database that has none; who comes later is held to it."""
    unnamed = start_service("registry", "--database", url)
    await becomes(unnamed.address, SERVING)
    unnamed.kill()
    named = start_service("registry", "--database", url, "--system", "lab-a")
    await becomes(named.address, SERVING)
    named.kill()
    told = "is that of the system 'lab-a', and this registry is of the system 'lab-b'"
    with pytest.raises(pytest.fail.Exception, match=told):  # it ends before it serves anywhere
        start_service("registry", "--database", url, "--system", "lab-b")
    again = start_service("registry", "--database", url, "--system", "lab-a")
    await becomes(again.address, SERVING)


def wait_until_led(url: str, service: str) -> None:
    """Until a process of the service has the lease."""
    database, deadline_s = connect_database(url, service), time.monotonic() + LIMIT_S
    lease = None
    while lease is None:
        assert time.monotonic() < deadline_s
        with database.read() as connection:
            lease = read_lease(connection, service)
    database.close()


async def is_known_to(address: str) -> None:
    """Until the registry has been told of a selector that stands by."""
    async with asyncio.timeout(LIMIT_S), AsyncClient(address) as client:
        while not any(each.stands_by for each in await client.services()):
            pass


async def test_a_selector_of_a_former_system_that_is_gone_is_taken_over(
    start_service: StartService, url: str
) -> None:
    """As after a restore beside a new registry: the lease is held by who will never beat again."""
    folder = Path(selector.__file__ or "").parent / "migrations"
    elsewhere = ProcessIdentity("elsewhere", "another-boot", "a-namespace", 7, "12345")
    database = connect_database(url, "selector")
    assert Lease(database, ManualClock(), process=elsewhere).take_if_allowed().may_take
    database.migrate(str(folder))
    with database.write() as connection:
        note_system(connection, "selector", "the-registry-before")
    database.close()
    registry = start_service("registry").address
    await becomes(start_service("selector", "--database", url, "--registry", registry).address, SERVING)
