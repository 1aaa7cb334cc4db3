"""Worker processes of a real agent: started from warm ones, watched, stopped, and never left behind."""

import asyncio
import json
import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import psutil
import pytest
from node_agent_parts import (
    JOB,
    LIMIT_S,
    TRAINER,
    ServiceHandle,
    StartService,
    agent_at,
    request_work,
    start_workers,
    trainer_list,
    watch_until,
    worker_command,
)

from peerloom.errors import (
    AlreadyExistsError,
    FailedPreconditionError,
    InvalidArgumentError,
    NotFoundError,
)
from peerloom.kit.dialing import NodeAgentPeer
from peerloom.v1.node_agent_pb2 import (
    GetWorkerLogsRequest,
    HandshakeRequest,
    Refusal,
    StartWorkersRequest,
    StopWorkersRequest,
    WatchWorkersRequest,
)


@pytest.fixture
async def registry() -> AsyncIterator[str]:
    async with trainer_list() as address:
        yield address


@pytest.fixture
async def agent(start_service: StartService, tmp_path: Path, registry: str) -> ServiceHandle:
    """Lends 3 slots; all that it needs of a registry here is the list of trainers."""
    return await asyncio.to_thread(
        start_service, "node_agent", "--registry", registry,
        "--state", str(tmp_path / "state"), "--slots", "3",
        "--threads-per-slot", "2", "--worker-command", worker_command(tmp_path),
    )  # fmt: skip


@pytest.fixture
async def peer(agent: ServiceHandle) -> AsyncIterator[NodeAgentPeer]:
    async with agent_at(agent.address) as opened:
        yield opened


async def free_slots(peer: NodeAgentPeer) -> int:
    return int((await peer.call(peer.stub.Handshake, HandshakeRequest())).slots.free)


async def logs(peer: NodeAgentPeer, **fields: object) -> list[tuple[str, str]]:
    request = GetWorkerLogsRequest(job_id=JOB, **fields)  # type: ignore[arg-type]  # a test's table
    async with asyncio.timeout(LIMIT_S):
        return [(line.worker_id, line.line) async for line in peer.stream(peer.stub.GetWorkerLogs, request)]


async def test_a_repeated_request_reserves_once(peer: NodeAgentPeer) -> None:
    first, second = await request_work(peer, 2), await request_work(peer, 2)
    assert first.reservation_id == second.reservation_id
    assert await free_slots(peer) == 1
    other = await request_work(peer, 2, request_id="request-2")
    assert other.accepted_slots == 1
    third = await request_work(peer, 1, request_id="request-3")
    assert (third.refusal, third.reason) == (Refusal.REFUSAL_BUSY, "None of 3 slots is free.")


@pytest.mark.parametrize(
    ("fields", "refusal"),
    [
        ({"accelerator_kind": "cuda"}, Refusal.REFUSAL_NO_ACCELERATOR),
        ({"work": {"task": "no_such_package:Net"}}, Refusal.REFUSAL_UNKNOWN_TASK),
        ({"memory_bytes": 2**60}, Refusal.REFUSAL_NO_MEMORY),
    ],
)
async def test_a_refusal_is_an_answer_with_a_reason(
    peer: NodeAgentPeer, fields: dict[str, object], refusal: Refusal.ValueType
) -> None:
    answer = await request_work(peer, 1, **fields)
    assert (answer.accepted_slots, answer.refusal) == (0, refusal)
    assert answer.reason.endswith(".")
    assert await free_slots(peer) == 3


@pytest.mark.parametrize(
    "fields", [{"job_id": "../job"}, {"slots": 0}, {"work": {"task": ""}}, {"request_id": ""}]
)
async def test_a_malformed_request_is_refused(peer: NodeAgentPeer, fields: dict[str, object]) -> None:
    with pytest.raises(InvalidArgumentError):
        await request_work(peer, **{"slots": 1, **fields})  # type: ignore[arg-type]  # wrong on purpose


async def test_a_worker_is_told_all_that_it_needs(
    peer: NodeAgentPeer, agent: ServiceHandle, tmp_path: Path
) -> None:
    started = await start_workers(peer, "exit-0")
    assert (started.workers[0].worker_id, started.workers[0].slot) == ("exit-0", 0)
    await watch_until(peer, ended=1)
    [(worker_id, line)] = await logs(peer)
    assert worker_id == "exit-0"
    told = json.loads(line)
    folder = Path(told.pop("folder"))
    assert (folder.parent, folder.name[:7]) == (tmp_path / "state" / "workers", "exit-0-")
    state = str(tmp_path / "state")
    grant = told.pop("grant")
    assert (grant["folder"], grant["private"], grant["reads"]) == (str(folder), state, [])
    assert told == {
        "worker_id": "exit-0",
        "job_id": JOB,
        "work": {
            "trainer_address": TRAINER,
            "task": "digits",
            "task_arguments": {},
            "code_digest": "",
            "initial_model_digest": "",
            "script_arguments": None,
        },
        "agent_address": agent.address,
        "slot": 0,
        "accelerator_kind": "cpu",
        "device_index": 0,
        "interface": "lo",
        "threads": 2,
        "log_path": str(tmp_path / "state" / "logs" / JOB / "exit-0.log"),
        "secret": "5" * 64,
        "identity": "",
        "data_roots": [],
        "plain_collectives": False,
        "is_relayed": False,
        "traceparent": "",
        "OMP_NUM_THREADS": "2",
    }


async def test_each_end_is_told_with_its_status_and_frees_the_slot(peer: NodeAgentPeer) -> None:
    """One ends well, one fails, one is killed from outside; a later watch hears all of it again."""
    started = await start_workers(peer, "exit-0", "exit-3", "waits")
    os.kill(started.workers[2].pid, signal.SIGKILL)
    for _ in range(2):
        told = await watch_until(peer, ended=3)
        assert {seen.worker.worker_id: seen.exit_code for seen in told if seen.ended} == {
            "exit-0": 0,
            "exit-3": 3,
            "waits": -signal.SIGKILL,
        }
        assert sum(not seen.ended for seen in told) == 3
    assert await free_slots(peer) == 3


async def test_stopping_a_job_ends_stubborn_workers_and_reservations_too(peer: NodeAgentPeer) -> None:
    started = await start_workers(peer, "waits", "stubborn")
    await logs_until(peer, "stubborn")  # SIGTERM is ignored from now on
    await request_work(peer, 1, request_id="request-2")
    assert await free_slots(peer) == 0
    answer = await peer.call(peer.stub.StopWorkers, StopWorkersRequest(job_id=JOB, grace_s=0.2))
    assert answer.stopped == 2
    assert await free_slots(peer) == 3
    told = await watch_until(peer, ended=2)
    codes = {seen.worker.worker_id: seen.exit_code for seen in told if seen.ended}
    assert codes == {"waits": -signal.SIGTERM, "stubborn": -signal.SIGKILL}
    assert not any(psutil.pid_exists(worker.pid) for worker in started.workers)
    again = await peer.call(peer.stub.StopWorkers, StopWorkersRequest(job_id=JOB))
    assert again.stopped == 0


async def logs_until(peer: NodeAgentPeer, worker_id: str) -> None:
    """Waits until a worker has printed its first line."""
    request = GetWorkerLogsRequest(job_id=JOB, follow=True)
    async with asyncio.timeout(LIMIT_S):
        async for line in peer.stream(peer.stub.GetWorkerLogs, request):
            if line.worker_id == worker_id:
                return


async def test_a_repeated_start_starts_nothing(peer: NodeAgentPeer) -> None:
    held = await request_work(peer, 1)
    request = StartWorkersRequest(
        reservation_id=held.reservation_id, worker_ids=["waits"], worker_secrets=["5" * 64]
    )
    first, second = await asyncio.gather(
        peer.call(peer.stub.StartWorkers, request), peer.call(peer.stub.StartWorkers, request)
    )
    workers = [*first.workers, *second.workers]
    assert [(worker.worker_id, worker.slot) for worker in workers] == [("waits", 0)] * 2
    assert len({worker.pid for worker in workers if worker.pid}) <= 1  # 0 until it runs
    assert await free_slots(peer) == 2


async def test_a_start_without_reservation_or_with_a_known_worker_is_refused(peer: NodeAgentPeer) -> None:
    with pytest.raises(NotFoundError):
        await peer.call(
            peer.stub.StartWorkers,
            StartWorkersRequest(reservation_id="x", worker_ids=["a"], worker_secrets=["5" * 64]),
        )
    await start_workers(peer, "waits")
    with pytest.raises(AlreadyExistsError):
        await start_workers(peer, "waits", request_id="request-2")
    assert await free_slots(peer) == 2


async def test_a_worker_that_cannot_be_started_costs_no_slot(
    start_service: StartService, tmp_path: Path, registry: str
) -> None:
    agent = await asyncio.to_thread(
        start_service, "node_agent", "--registry", registry,
        "--state", str(tmp_path / "state"), "--slots", "1",
        "--worker-command", "/no/such/program",
    )  # fmt: skip
    async with agent_at(agent.address) as peer:
        for _ in range(2):
            with pytest.raises(FailedPreconditionError, match="can't be started"):
                await start_workers(peer, "waits")
        assert await free_slots(peer) == 1


async def test_logs_are_followed_until_the_workers_have_ended(peer: NodeAgentPeer) -> None:
    started = await start_workers(peer, "talk")
    request = GetWorkerLogsRequest(job_id=JOB, follow=True)
    lines = []
    async with asyncio.timeout(LIMIT_S):
        async for line in peer.stream(peer.stub.GetWorkerLogs, request):
            lines.append(line.line)
            if len(lines) == 1:
                os.kill(started.workers[0].pid, signal.SIGUSR1)
    assert len(lines) == 2
    assert lines[1] == "went on"
    assert await logs(peer, tail_lines=1) == [("talk", "went on")]


async def test_unknown_jobs_have_no_logs(peer: NodeAgentPeer) -> None:
    with pytest.raises(NotFoundError, match="job-1"):
        await logs(peer)


async def test_no_worker_outlives_a_killed_agent(agent: ServiceHandle, peer: NodeAgentPeer) -> None:
    """Busy and waiting ones end by themselves when their standard input ends."""
    started = await start_workers(peer, "waits", "stubborn")
    processes = psutil.Process(agent.process.pid).children(recursive=True)
    assert {worker.pid for worker in started.workers} <= {process.pid for process in processes}
    agent.kill()
    _, alive = await asyncio.to_thread(psutil.wait_procs, processes, LIMIT_S)
    assert not [process for process in alive if process.status() != psutil.STATUS_ZOMBIE]


async def test_a_graceful_stop_ends_the_workers_and_tells_the_watchers(
    agent: ServiceHandle, peer: NodeAgentPeer
) -> None:
    await start_workers(peer, "waits")
    told = []
    async with asyncio.timeout(LIMIT_S):
        async for message in peer.stream(peer.stub.WatchWorkers, WatchWorkersRequest(job_id=JOB)):
            if message.has_told_all:
                agent.process.send_signal(signal.SIGTERM)
            else:
                told.append(message)
    assert [(seen.ended, seen.exit_code) for seen in told] == [(False, 0), (True, -signal.SIGTERM)]
    assert await asyncio.to_thread(agent.process.wait, LIMIT_S) == 0
