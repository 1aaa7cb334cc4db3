"""What the tests of the node agent share: a small worker that follows the protocol, and ways to wait."""

import asyncio
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from grpc import aio

from peerloom.kit.dialing import Dialer, NodeAgentPeer
from peerloom.v1.node_agent_pb2 import (
    RequestWorkRequest,
    RequestWorkResponse,
    StartWorkersRequest,
    StartWorkersResponse,
    WatchWorkersRequest,
    WatchWorkersResponse,
    Work,
)
from peerloom.v1.registry_pb2 import (
    SERVICE_KIND_TRAINER,
    AnnounceServiceRequest,
    ListServicesRequest,
    ListServicesResponse,
    ServiceEndpoint,
    WatchNodesRequest,
    WatchNodesResponse,
)
from peerloom.v1.registry_pb2_grpc import RegistryServiceServicer, add_RegistryServiceServicer_to_server

# The fixture `start_service` and what it gives; conftest modules can't be imported by name safely.
StartService = Callable[..., Any]
ServiceHandle = Any

LIMIT_S = 60.0
JOB = "job-1"
TRAINER = "127.0.0.1:9"

# Its id tells it what to do: "exit-3" ends with 3, "stubborn" ignores SIGTERM, "rude" writes where only its
# end is told, "talk" prints a line, waits for SIGUSR1 and prints another, all others wait to be ended.
WORKER = """
import json, os, signal, sys, threading
from contextlib import suppress
from peerloom.worker.fork_server import serve
def end_with_agent():
    for line in sys.stdin:
        print("told:", line, flush=True)
    os._exit(1)
def work():
    line = sys.stdin.readline()
    if not line:
        return 0
    told = json.loads(line)
    out = os.open(told["log_path"], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(out, 1)
    os.dup2(out, 2)
    threading.Thread(target=end_with_agent, daemon=True).start()
    told["OMP_NUM_THREADS"] = os.environ["OMP_NUM_THREADS"]
    name = told["worker_id"]
    go_on = threading.Event()
    signal.signal(signal.SIGUSR1, lambda *_: go_on.set())
    if name.startswith("stubborn"):
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    print(json.dumps(told), flush=True)
    if name == "rude":
        for number in range(3, 64):
            with suppress(OSError):
                os.write(number, b"pid 1\\n")
    if name.startswith("exit-"):
        return int(name.removeprefix("exit-"))
    while not go_on.wait(0.1):
        pass
    print("went on", flush=True)
    return 0
serve(work)
"""


def worker_command(folder: Path, before: str = "") -> str:
    """The setting that makes an agent start the small worker, which does `before` ahead of all else."""
    script = folder / "small_worker.py"
    script.write_text(f"{before}\n{WORKER}")
    return f"{sys.executable},{script}"


def agent_at(address: str) -> NodeAgentPeer:
    """A channel to an agent."""
    return Dialer().node_agent(address)


@asynccontextmanager
async def node_events(registry_address: str) -> AsyncIterator[Callable[[int], Any]]:
    """Gives a function that waits for the next event of a kind from the registry, from its beginning on."""
    async with Dialer().registry(registry_address) as registry:
        stream = registry.stream(registry.stub.WatchNodes, WatchNodesRequest())

        async def wait_for(kind: int) -> WatchNodesResponse:
            async with asyncio.timeout(LIMIT_S):
                async for event in stream:
                    if event.kind == kind:
                        return event  # type: ignore[no-any-return]  # the stream's type is not known
            raise AssertionError("the registry ended its stream")

        yield wait_for
        await stream.aclose()


class TrainerList(RegistryServiceServicer):
    """A registry that does nothing but list the tests' trainer."""

    async def ListServices(  # noqa: N802  # the schema's name
        self, request: ListServicesRequest, context: Any
    ) -> ListServicesResponse:
        listed = ServiceEndpoint(kind=SERVICE_KIND_TRAINER, address=TRAINER)
        return ListServicesResponse(services=[listed])


@asynccontextmanager
async def trainer_list() -> AsyncIterator[str]:
    """Where a registry listens that only lists the tests' trainer."""
    server = aio.server()
    add_RegistryServiceServicer_to_server(TrainerList(), server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        yield f"127.0.0.1:{port}"
    finally:
        await server.stop(None)


async def announce_trainer(registry_address: str) -> None:
    """Has a real registry list the tests' trainer."""
    async with Dialer().registry(registry_address) as registry:
        request = AnnounceServiceRequest(kind=SERVICE_KIND_TRAINER, address=TRAINER)
        await registry.call(registry.stub.AnnounceService, request)


async def request_work(agent: NodeAgentPeer, slots: int = 1, **fields: Any) -> RequestWorkResponse:
    """Asks for slots of the job."""
    told = {"trainer_address": TRAINER, "task": "digits", **fields.pop("work", {})}
    fields = {"job_id": JOB, "request_id": "request-1", "work": Work(**told), **fields}
    answer: RequestWorkResponse = await agent.call(
        agent.stub.RequestWork, RequestWorkRequest(max_slots=slots, **fields)
    )
    return answer


async def start_workers(agent: NodeAgentPeer, *worker_ids: str, **fields: Any) -> StartWorkersResponse:
    """Asks for a slot for each worker, starts them, and repeats that until all are there."""
    held = await request_work(agent, len(worker_ids), **fields)
    assert held.accepted_slots == len(worker_ids), held.reason
    request = StartWorkersRequest(
        reservation_id=held.reservation_id,
        worker_ids=worker_ids,
        worker_secrets=["5" * 64 for _ in worker_ids],
    )
    async with asyncio.timeout(LIMIT_S):
        while True:
            started: StartWorkersResponse = await agent.call(agent.stub.StartWorkers, request)
            assert [worker.worker_id for worker in started.workers] == list(worker_ids)
            if all(worker.pid for worker in started.workers):
                return started


async def watch_until(agent: NodeAgentPeer, ended: int) -> list[WatchWorkersResponse]:
    """What is told of the job's workers until so many have ended."""
    told: list[WatchWorkersResponse] = []
    async with asyncio.timeout(LIMIT_S):
        async for message in agent.stream(agent.stub.WatchWorkers, WatchWorkersRequest(job_id=JOB)):
            if not message.has_told_all:
                told.append(message)
            if sum(seen.ended for seen in told) == ended:
                break
    return told
