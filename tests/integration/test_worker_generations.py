"""A worker leaves a generation that can't be formed any more as soon as the trainer announces the next."""

import asyncio
import threading
from collections.abc import AsyncIterator
from typing import Any

import pytest
from grpc import aio

from peerloom.v1.trainer_pb2 import (
    Backend,
    ConfigureGeneration,
    EndWorker,
    JobSpec,
    PrepareWorker,
    WorkerFailed,
    WorkerSessionRequest,
    WorkerSessionResponse,
)
from peerloom.v1.trainer_pb2_grpc import TrainerServiceServicer, add_TrainerServiceServicer_to_server
from peerloom.worker.agent_commands import AgentCommands
from peerloom.worker.assignment import Assignment, Work
from peerloom.worker.run import TrainingWorker, run_worker

SPEC = JobSpec(task="digits", epochs=1000, batch_size=64, learning_rate=0.1, seed=1)
pytestmark = pytest.mark.timeout(90)

DIGEST = "d" * 64


class RestartedTrainer(TrainerServiceServicer):
    """Announces a generation whose others never come; `others` more at once; then one that it is alone in."""

    def __init__(self, others: int) -> None:
        self._announced = 1 + others
        self.words: list[tuple[str, int]] = []

    async def WorkerSession(  # noqa: N802  # the schema's name
        self, request_iterator: AsyncIterator[WorkerSessionRequest], context: Any
    ) -> AsyncIterator[WorkerSessionResponse]:
        heard = aiter(request_iterator)
        assert (await anext(heard)).HasField("hello")
        yield WorkerSessionResponse(prepare=PrepareWorker(spec=SPEC, beat_interval_s=60.0))
        assert (await anext(heard)).HasField("prepared")
        for generation in range(1, self._announced + 1):
            yield configure(generation, 2)
        yield configure(self._announced + 1, 1)
        async for request in heard:
            word = str(request.WhichOneof("message"))
            if word in ("aborted", "ready"):
                self.words.append((word, getattr(request, word).generation))
            if word == "ready":
                break
        yield WorkerSessionResponse(end=EndWorker(reason="the test is over"))


class ForgetfulTrainer(TrainerServiceServicer):
    """Announces, in the middle of a generation, another from the beginning, as if nothing had been made."""

    def __init__(self) -> None:
        self.words: list[tuple[str, int]] = []
        self.made: list[int] = []  # the steps that the worker says it has, at each end of a generation

    async def WorkerSession(  # noqa: N802  # the schema's name
        self, request_iterator: AsyncIterator[WorkerSessionRequest], context: Any
    ) -> AsyncIterator[WorkerSessionResponse]:
        heard = aiter(request_iterator)
        assert (await anext(heard)).HasField("hello")
        yield WorkerSessionResponse(prepare=PrepareWorker(spec=SPEC, beat_interval_s=60.0))
        assert (await anext(heard)).HasField("prepared")
        yield configure(1, 1)
        async for request in heard:
            word = str(request.WhichOneof("message"))
            if any(step.step == 3 for step in request.steps.steps):
                yield configure(2, 1)
            if word not in ("aborted", "ready"):
                continue
            self.words.append((word, getattr(request, word).generation))
            if word == "aborted":
                self.made.append(request.aborted.committed_step)
            if self.words[-1] == ("aborted", 2):
                yield configure(3, 1, self.made[-1])
            if self.words[-1] == ("ready", 3):
                break
        yield WorkerSessionResponse(end=EndWorker(reason="the test is over"))


def configure(generation: int, world_size: int, first_step: int = 0) -> WorkerSessionResponse:
    return WorkerSessionResponse(
        configure=ConfigureGeneration(
            generation=generation,
            world_size=world_size,
            backend=Backend.BACKEND_GLOO,
            spec=SPEC,
            first_step=first_step,
            collective_timeout_s=600.0,
        )
    )


class ForeignTrainer(TrainerServiceServicer):
    """Prepares a worker for a task, by default with code that nobody asked the node for."""

    def __init__(self, spec: JobSpec | None = None) -> None:
        self.failed = WorkerFailed()
        self.ends = asyncio.Event()  # also for a worker that doesn't say that it failed
        self._spec = spec or JobSpec(task="evil:Task", code_digest="c" * 64)

    async def WorkerSession(  # noqa: N802  # the schema's name
        self, request_iterator: AsyncIterator[WorkerSessionRequest], context: Any
    ) -> AsyncIterator[WorkerSessionResponse]:
        heard = aiter(request_iterator)
        assert (await anext(heard)).HasField("hello")
        yield WorkerSessionResponse(prepare=PrepareWorker(spec=self._spec, beat_interval_s=60.0))
        listening = asyncio.create_task(self._listen(heard))
        await self.ends.wait()
        listening.cancel()
        yield WorkerSessionResponse(end=EndWorker(reason="the test is over"))

    async def _listen(self, heard: AsyncIterator[WorkerSessionRequest]) -> None:
        async for request in heard:
            if request.HasField("failed"):
                self.failed = request.failed
                self.ends.set()


class QuietAgent(AgentCommands):
    """Says nothing."""

    def __init__(self) -> None:
        pass

    def listen(self, *commands: object) -> None:
        pass


async def test_a_worker_refuses_what_its_node_did_not_agree_to(monkeypatch: pytest.MonkeyPatch) -> None:
    """It fetches no code, and tells the trainer why it ends."""
    trainer = ForeignTrainer()
    await fail_under(trainer, monkeypatch)
    assert trainer.failed.is_permanent
    assert trainer.failed.reason == (
        "This worker does only what it was started for: the trainer wants task 'evil:Task', but the node "
        "agreed to 'digits' when it was asked for work."
    )


async def test_who_is_cut_off_from_its_agent_is_lost_and_its_job_goes_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The parameters to begin with lie with an agent that stays away; another node's isn't."""
    monkeypatch.setattr("peerloom.worker.agent_artifacts.PATIENCE_S", 0.0)
    trainer = ForeignTrainer(JobSpec(task="digits", initial_model_digest=DIGEST))
    await fail_under(trainer, monkeypatch)
    assert trainer.failed == WorkerFailed(), "what it says would end the job, or forbid this node"


def sessions() -> set[threading.Thread]:
    """Those of this process's workers."""
    return {thread for thread in threading.enumerate() if thread.name == "session"}


async def fail_under(trainer: ForeignTrainer, monkeypatch: pytest.MonkeyPatch) -> None:
    """The life of a worker that can't go on."""
    monkeypatch.setattr("peerloom.worker.run.signal.signal", lambda *_: None)  # not the main thread
    server, others = aio.server(), sessions()
    add_TrainerServiceServicer_to_server(trainer, server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    work = Work(f"127.0.0.1:{port}", "digits", initial_model_digest=DIGEST)
    assignment = Assignment("worker-1", "job-1", work, "127.0.0.1:1", 0, "cpu", 0, "", 1, "", "5" * 64)
    try:
        async with asyncio.timeout(60):
            assert await asyncio.to_thread(run_worker, assignment, QuietAgent()) == 1
            trainer.ends.set()
            for session in sessions() - others:  # it would look for its trainer beside all other tests
                await asyncio.to_thread(session.join, 30)
    finally:
        await server.stop(None)


@pytest.mark.parametrize("others", [0, 2])
async def test_the_next_generation_ends_the_wait_for_members_that_never_come(others: int) -> None:
    """Else the worker would try to reach it for all of the collectives' time limit, once for each of them."""
    trainer = RestartedTrainer(others)
    await work_for(trainer)
    last = others + 2
    assert trainer.words == [*(("aborted", number) for number in range(1, last)), ("ready", last)]


async def test_a_worker_that_has_made_other_steps_than_a_generation_begins_after_says_so() -> None:
    """Else its steps would be others than those of its peers, and one day they would not mean the same."""
    trainer = ForgetfulTrainer()
    await work_for(trainer)
    assert trainer.words == [("ready", 1), ("aborted", 1), ("aborted", 2), ("ready", 3)]
    assert trainer.made[0] == trainer.made[1] >= 3


async def work_for(trainer: TrainerServiceServicer) -> None:
    """A worker's whole life under this trainer."""
    server = aio.server()
    add_TrainerServiceServicer_to_server(trainer, server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    assignment = Assignment(
        worker_id="worker-1",
        job_id="job-1",
        work=Work(f"127.0.0.1:{port}", "digits"),
        agent_address="127.0.0.1:1",
        slot=0,
        accelerator_kind="cpu",
        device_index=0,
        interface="",
        threads=1,
        log_path="",
        secret="5" * 64,
    )
    try:
        async with asyncio.timeout(60):
            assert await asyncio.to_thread(TrainingWorker(assignment).run) == 0
    finally:
        await server.stop(None)
