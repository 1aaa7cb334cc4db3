"""The agent's service over scripted workers: what is accepted, started, told and refused."""

import asyncio
from collections.abc import Callable
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest
from agent_parts import LIMIT_S, MACHINE, TRAINER, ScriptedWorker, World

from peerloom.artifacts.store import ArtifactStore
from peerloom.errors import (
    FailedPreconditionError,
    InvalidArgumentError,
    NotFoundError,
    PeerloomError,
    UnavailableError,
)
from peerloom.services.node_agent.membership.listed_trainers import ListedTrainers
from peerloom.services.node_agent.owner.policy import Hours, OwnerLimits
from peerloom.services.node_agent.servicer import AgentDependencies, NodeAgentServicer
from peerloom.services.node_agent.tunnels.worker_ports import WorkerPorts
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
    Work,
)
from peerloom.v1.registry_pb2 import NodeSpec
from peerloom.worker import assignment

JOB = "job-1"
CONTEXT: Any = None  # the servicer asks nothing of a call's context


async def _reached_at(port: int, host: str, is_open: Callable[[], bool]) -> str:
    return f"10.0.0.2:{port}"


class Bench(World):
    """The service itself."""

    def __init__(self, folder: Path, limits: OwnerLimits | None = None) -> None:
        super().__init__(folder / "logs", limits)
        self.stopping = asyncio.Event()
        self.listed: list[str] | PeerloomError = [TRAINER]
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
            is_plain=True,
            worker_ports=WorkerPorts(_reached_at, self.pool.running, lambda: self.status.node_id),
            relay=None,
            trainers=ListedTrainers(self._list_trainers, self.clock),
            available_bytes=self.meter.available_bytes,
            clock=self.clock,
            stopping=self.stopping,
        )
        self.service = NodeAgentServicer(agent)

    async def request_work(self, slots: int = 1, **fields: Any) -> RequestWorkResponse:
        told = {"trainer_address": TRAINER, "task": "digits", **fields.pop("work", {})}
        fields = {"job_id": JOB, "request_id": "request-1", "work": Work(**told), **fields}
        return await self.service.RequestWork(RequestWorkRequest(max_slots=slots, **fields), CONTEXT)

    async def start(self, *worker_ids: str, held: RequestWorkResponse) -> list[ScriptedWorker]:
        before = len(self.starter.workers)
        secrets = ["5" * 64 for _ in worker_ids]
        request = StartWorkersRequest(
            reservation_id=held.reservation_id, worker_ids=worker_ids, worker_secrets=secrets
        )
        await self.service.StartWorkers(request, CONTEXT)
        return self.starter.workers[before:]

    async def _list_trainers(self) -> list[str]:
        if isinstance(self.listed, PeerloomError):
            raise self.listed
        return self.listed

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
    assert (refused.refusal, refused.reason) == (Refusal.REFUSAL_BUSY, "None of 3 slots is free.")
    bench.clock.advance(30.0)
    assert await bench.free() == 3


@pytest.mark.parametrize(
    ("fields", "refusal"),
    [
        ({"accelerator_kind": "cuda"}, Refusal.REFUSAL_NO_ACCELERATOR),
        ({"work": {"task": "no_such_package:Net"}}, Refusal.REFUSAL_UNKNOWN_TASK),
        ({"memory_bytes": 1001}, Refusal.REFUSAL_NO_MEMORY),
        ({"work": {"code_digest": "c" * 64}}, Refusal.REFUSAL_OWNER_LIMITS),
        ({"work": {"trainer_address": "127.0.0.1:10"}}, Refusal.REFUSAL_UNKNOWN_TRAINER),
        ({"work": {"task": "text", "task_arguments": {"data": "/etc/shadow"}}}, Refusal.REFUSAL_OWNER_LIMITS),
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
        {"request_id": ""},
        {"request_id": "a\0"},
        {"accelerator_kind": "c" * 64},
        {"work": {"task": ""}},
        {"work": {"task": "t" * 257}},
        {"work": {"trainer_address": ""}},
        {"work": {"code_digest": "../../etc"}},
        {"work": {"initial_model_digest": "C" * 64}},
        {"work": {"task_arguments": {"data": "artifact:../x"}}},
        {"work": {"task_arguments": {str(number): "" for number in range(33)}}},
    ],
)
async def test_a_malformed_request_is_refused(bench: Bench, fields: dict[str, Any]) -> None:
    with pytest.raises(InvalidArgumentError):
        await bench.request_work(**fields)


async def test_a_worker_gets_the_work_that_was_decided_on_and_no_other_trainer(bench: Bench) -> None:
    """The caller of StartWorkers says which workers, and nothing of what they do or for whom."""
    told = {"task_arguments": {"data": f"artifact:{'d' * 64}"}, "initial_model_digest": "e" * 64}
    held = await bench.request_work(work={"task": "mnist", **told})
    [worker] = await bench.start("a", held=held)
    assert worker.assignment is not None
    assert worker.assignment.work == assignment.Work(TRAINER, "mnist", code_digest="", **told)  # type: ignore[arg-type]  # a test's table
    fields = set(StartWorkersRequest.DESCRIPTOR.fields_by_name)
    assert fields == {"reservation_id", "worker_ids", "worker_secrets"}


async def test_without_a_word_of_the_registry_a_trainer_is_refused_for_now(bench: Bench) -> None:
    bench.listed = UnavailableError("no registry answers")
    answer = await bench.request_work()
    assert (answer.accepted_slots, answer.refusal) == (0, Refusal.REFUSAL_UNKNOWN_TRAINER)
    assert answer.reason.endswith("can't ask now: no registry answers")


async def test_a_trainer_that_was_listed_is_known_for_a_minute(bench: Bench) -> None:
    """A registry that is away for a moment, or has just started again, ends no job."""
    bench.listed = ["127.0.0.1:8", TRAINER]
    assert (await bench.request_work()).accepted_slots == 1
    bench.listed = UnavailableError("no registry answers")
    bench.clock.advance(59.9)
    for number, address in enumerate((TRAINER, "127.0.0.1:8")):
        told = {"work": {"trainer_address": address}, "request_id": f"request-{number + 2}"}
        assert (await bench.request_work(**told)).accepted_slots == 1
    bench.clock.advance(0.1)
    assert (await bench.request_work(request_id="request-4")).refusal == Refusal.REFUSAL_UNKNOWN_TRAINER
    bench.listed = []
    answer = await bench.request_work(request_id="request-5")
    assert answer.reason == (
        f"The registry lists no trainer at {TRAINER}, and the node works for no other (none listed)."
    )


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
            reservation_id=held.reservation_id, worker_ids=["a", "b"], worker_secrets=["5" * 64, "6" * 64]
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
            if message.has_told_all:
                continue
            told.append((message.worker.worker_id, message.ended, message.exit_code))
            if len(told) == 3:
                answer = await bench.service.StopWorkers(StopWorkersRequest(job_id=JOB), CONTEXT)
                stopped = answer.stopped
            if len(told) == 4:
                break
    assert told == [("a", False, 0), ("b", False, 0), ("a", True, 3), ("b", True, -15)]
    assert stopped == 1
    assert await bench.free() == 3


async def test_a_job_is_watched_by_whoever_says_where_its_trainer_is(bench: Bench) -> None:
    await bench.start("a", held=await bench.request_work())
    assert bench.pool.unwatched() == [JOB]
    for address, unwatched in (("", [JOB]), (TRAINER, [])):
        request = WatchWorkersRequest(job_id=JOB, trainer_address=address, trainer_epoch=1)
        watch = bench.service.WatchWorkers(request, CONTEXT)
        async with aclosing(watch):
            await anext(watch)
            assert bench.pool.unwatched() == unwatched
        assert bench.pool.unwatched() == [JOB]


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
    request = StartWorkersRequest(reservation_id="x", worker_ids=ids, worker_secrets=secrets)
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
    await bench.start("a", held=await bench.request_work())
    bench.logs.prepare(JOB, "a", set()).write_text("one\ntwo\n")
    request = GetWorkerLogsRequest(job_id=JOB, tail_lines=1)
    lines = [(line.worker_id, line.line) async for line in bench.service.GetWorkerLogs(request, CONTEXT)]
    assert lines == [("a", "two")]


async def test_a_node_that_lends_nothing_to_inference_says_so(bench: Bench) -> None:
    with pytest.raises(FailedPreconditionError, match="inference = false"):
        await bench.service.StartInference(StartInferenceRequest(), CONTEXT)
