"""The agent's service over scripted workers: what is accepted, started, told and refused."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from agent_parts import LIMIT_S, MACHINE, TRAINER, World

from peerloom.artifacts.store import ArtifactStore
from peerloom.errors import FailedPreconditionError, InvalidArgumentError, NotFoundError
from peerloom.services.node_agent.owner.policy import Hours, OwnerLimits
from peerloom.services.node_agent.servicer import AgentDependencies, NodeAgentServicer
from peerloom.v1.common_pb2 import MachineSpeed
from peerloom.v1.node_agent_pb2 import (
    GetWorkerLogsRequest,
    HandshakeRequest,
    Refusal,
    RequestWorkRequest,
    RequestWorkResponse,
    StartInferenceRequest,
    StartWorkersRequest,
    StopWorkersRequest,
    WatchWorkersRequest,
)
from peerloom.v1.registry_pb2 import NodeSpec

JOB = "job-1"
CONTEXT: Any = None  # the servicer asks nothing of a call's context


class Bench(World):
    """The service itself."""

    def __init__(self, folder: Path, limits: OwnerLimits | None = None) -> None:
        super().__init__(folder / "logs", limits)
        self.stopping = asyncio.Event()
        agent = AgentDependencies(
            config=self.config,
            machine=MACHINE,
            spec=NodeSpec(name="alpha", address="10.0.0.2:1", accelerators=MACHINE.accelerators),
            status=self.status,
            slots=self.slots,
            pool=self.pool,
            policy=self.policy,
            logs=self.logs,
            artifacts=ArtifactStore(folder / "artifacts", 1000),
            inference=None,
            available_bytes=self.meter.available_bytes,
            clock=self.clock,
            stopping=self.stopping,
        )
        self.service = NodeAgentServicer(agent)

    async def request_work(self, slots: int = 1, **fields: Any) -> RequestWorkResponse:
        fields = {"job_id": JOB, "task": "digits", "request_id": "request-1", **fields}
        return await self.service.RequestWork(RequestWorkRequest(max_slots=slots, **fields), CONTEXT)

    async def free(self) -> int:
        return (await self.service.Handshake(HandshakeRequest(), CONTEXT)).slots.free


@pytest.fixture
async def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


async def test_a_handshake_tells_of_now(bench: Bench) -> None:
    bench.status.note_registered("node-1")
    bench.status.note_speed(MachineSpeed(matmul_gflops=2.0))
    answer = await bench.service.Handshake(HandshakeRequest(caller="a test"), CONTEXT)
    assert (answer.node_id, answer.name, answer.slots.total, answer.slots.free) == ("node-1", "alpha", 3, 3)
    assert (answer.speed.matmul_gflops, answer.draining) == (2.0, False)
    bench.status.note_draining(True)
    assert (await bench.service.Handshake(HandshakeRequest(), CONTEXT)).draining


async def test_a_repeated_request_reserves_once_and_its_time_passes(bench: Bench) -> None:
    first, second = await bench.request_work(2), await bench.request_work(2)
    assert first.reservation_id == second.reservation_id
    assert (first.accepted_slots, first.reservation_s, first.accelerator_kind) == (2, 30.0, "cpu")
    assert await bench.free() == 1
    assert (await bench.request_work(3, request_id="request-2")).accepted_slots == 1
    refused = await bench.request_work(1, request_id="request-3")
    assert (refused.refusal, refused.reason) == (Refusal.REFUSAL_BUSY, "All 3 slots are taken.")
    bench.clock.advance(30.0)
    assert await bench.free() == 3


@pytest.mark.parametrize(
    ("fields", "refusal"),
    [
        ({"accelerator_kind": "cuda"}, Refusal.REFUSAL_NO_ACCELERATOR),
        ({"task": "no_such_package:Net"}, Refusal.REFUSAL_UNKNOWN_TASK),
        ({"memory_bytes": 1001}, Refusal.REFUSAL_NO_MEMORY),
        ({"brings_code": True}, Refusal.REFUSAL_OWNER_LIMITS),
    ],
)
async def test_a_refusal_is_an_answer_with_a_reason(
    bench: Bench, fields: dict[str, Any], refusal: Refusal.ValueType
) -> None:
    answer = await bench.request_work(**fields)
    assert (answer.accepted_slots, answer.refusal) == (0, refusal)
    assert answer.reason.endswith(".")
    assert await bench.free() == 3


@pytest.mark.parametrize(
    "fields",
    [
        {"job_id": "../job"},
        {"slots": 0},
        {"task": ""},
        {"request_id": ""},
        {"request_id": "a\0"},
        {"task": "t" * 257},
        {"accelerator_kind": "c" * 64},
    ],
)
async def test_a_malformed_request_is_refused(bench: Bench, fields: dict[str, Any]) -> None:
    with pytest.raises(InvalidArgumentError):
        await bench.request_work(**fields)


async def test_a_drain_or_a_stop_refuses_new_work(bench: Bench) -> None:
    bench.status.note_draining(True)
    assert (await bench.request_work()).refusal == Refusal.REFUSAL_DRAINING
    bench.status.note_draining(False)
    bench.stopping.set()
    assert (await bench.request_work()).refusal == Refusal.REFUSAL_DRAINING


async def test_what_the_owner_withholds_is_refused_with_the_reason(tmp_path: Path) -> None:
    bench = Bench(tmp_path, OwnerLimits(hours=(Hours.parse("22:00-07:00"),)))
    bench.meter.usage = type(bench.meter.usage)(minute=600, others_load=0.0)
    await bench.policy.look()
    answer = await bench.request_work()
    assert answer.refusal == Refusal.REFUSAL_OWNER_LIMITS
    assert "22:00-07:00" in answer.reason


async def test_workers_are_started_watched_and_stopped(bench: Bench) -> None:
    held = await bench.request_work(2)
    started = await bench.service.StartWorkers(
        StartWorkersRequest(
            reservation_id=held.reservation_id,
            trainer_address=TRAINER,
            worker_ids=["a", "b"],
            worker_secrets=["5" * 64, "6" * 64],
        ),
        CONTEXT,
    )
    assigned = [worker.assignment.secret for worker in bench.starter.workers if worker.assignment]
    assert assigned == ["5" * 64, "6" * 64], "each is told its own, in the order of the ids"
    assert [(worker.worker_id, worker.slot, worker.pid) for worker in started.workers] == [
        ("a", 0, 100),
        ("b", 1, 101),
    ]
    told, stopped = [], 0
    bench.starter.workers[0].end(3)
    async with asyncio.timeout(LIMIT_S):
        async for message in bench.service.WatchWorkers(WatchWorkersRequest(job_id=JOB), CONTEXT):
            told.append((message.worker.worker_id, message.ended, message.exit_code))
            if len(told) == 3:
                answer = await bench.service.StopWorkers(StopWorkersRequest(job_id=JOB), CONTEXT)
                stopped = answer.stopped
            if len(told) == 4:
                break
    assert told == [("a", False, 0), ("b", False, 0), ("a", True, 3), ("b", True, -15)]
    assert stopped == 1
    assert await bench.free() == 3


@pytest.mark.parametrize(
    ("ids", "secrets", "field"),
    [
        (["a", "b"], ["5" * 64], "worker_secrets (entries)"),
        (["a"], ["5" * 63], "worker_secrets"),
        (["a", "a"], ["5" * 64, "6" * 64], "worker_ids"),
        (["a" * 64], ["5" * 64], "worker_ids"),
    ],
)
async def test_a_start_whose_ids_and_secrets_do_not_pair_is_refused(
    bench: Bench, ids: list[str], secrets: list[str], field: str
) -> None:
    request = StartWorkersRequest(
        reservation_id="x", trainer_address=TRAINER, worker_ids=ids, worker_secrets=secrets
    )
    with pytest.raises(InvalidArgumentError) as caught:
        await bench.service.StartWorkers(request, CONTEXT)
    assert caught.value.metadata["field"] == field
    assert secrets[0] not in caught.value.message


@pytest.mark.parametrize("reservation_id", ["", "x" * 100_000, "a\0"])
async def test_what_can_not_be_a_reservation_is_refused(bench: Bench, reservation_id: str) -> None:
    with pytest.raises(InvalidArgumentError, match="reservation_id"):
        await bench.service.StartWorkers(StartWorkersRequest(reservation_id=reservation_id), CONTEXT)


async def test_a_jobs_output_is_read_with_the_worker_that_printed_it(bench: Bench) -> None:
    with pytest.raises(NotFoundError, match=JOB):
        async for _ in bench.service.GetWorkerLogs(GetWorkerLogsRequest(job_id=JOB), CONTEXT):
            pass
    await bench.start("a")
    bench.logs.prepare(JOB, "a", set()).write_text("one\ntwo\n")
    request = GetWorkerLogsRequest(job_id=JOB, tail_lines=1)
    lines = [(line.worker_id, line.line) async for line in bench.service.GetWorkerLogs(request, CONTEXT)]
    assert lines == [("a", "two")]


async def test_a_node_that_lends_nothing_to_inference_says_so(bench: Bench) -> None:
    with pytest.raises(FailedPreconditionError, match="inference = false"):
        await bench.service.StartInference(StartInferenceRequest(), CONTEXT)
