"""A worker's signs of life are answers: a trainer that isn't heard hears nothing either."""

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any, TypeVar

import grpc
import pytest
from grpc import aio

from peerloom.kit.backoff import Backoff
from peerloom.kit.dialing import Dialer, TrainerPeer
from peerloom.v1.trainer_pb2 import (
    AbortGeneration,
    Checkpoint,
    ConfigureGeneration,
    EndWorker,
    PrepareWorker,
    ProgressRecorded,
    SaveState,
    StepProgress,
    StoreEntry,
    WorkerFinished,
    WorkerHello,
    WorkerPrepared,
    WorkerSessionRequest,
    WorkerSessionResponse,
)
from peerloom.v1.trainer_pb2_grpc import TrainerServiceServicer, add_TrainerServiceServicer_to_server
from peerloom.worker.assignment import Assignment, Work
from peerloom.worker.trainer_session import TrainerSession

WORDS, TRIES = 3, 5
T = TypeVar("T", bound=TrainerServiceServicer)
pytestmark = pytest.mark.timeout(60)


class Trainer(TrainerServiceServicer):
    """Says a word, waits for the sign of life that answers it, and so on; then ends the worker."""

    def __init__(self) -> None:
        self.beats_after_word: list[int] = []
        self.done = asyncio.Event()

    async def WorkerSession(  # noqa: N802  # the schema's name
        self, request_iterator: AsyncIterator[WorkerSessionRequest], context: Any
    ) -> AsyncIterator[WorkerSessionResponse]:
        heard = aiter(request_iterator)
        assert (await anext(heard)).HasField("hello")
        # A line of which only this direction is quiet: the worker may speak, and has no reason to.
        # Without an interval each word is answered, however soon it follows the one before.
        yield WorkerSessionResponse(prepare=PrepareWorker(beat_interval_s=0.0))
        for word in range(WORDS):
            yield WorkerSessionResponse(recorded=ProgressRecorded(step=word))
            request = await anext(heard)
            self.beats_after_word.append(int(request.HasField("beat")))
        yield WorkerSessionResponse(end=EndWorker(reason="the test is over"))
        self.done.set()


class Restarted(TrainerServiceServicer):
    """Announces a generation, hears a member's entry and dies; hears it again, and tells it to all."""

    def __init__(self) -> None:
        self.said: list[StoreEntry] = []
        self.hellos: list[WorkerHello] = []

    async def WorkerSession(  # noqa: N802  # the schema's name
        self, request_iterator: AsyncIterator[WorkerSessionRequest], context: Any
    ) -> AsyncIterator[WorkerSessionResponse]:
        heard = aiter(request_iterator)
        self.hellos.append((await anext(heard)).hello)
        if not self.said:
            yield WorkerSessionResponse(configure=ConfigureGeneration(generation=1, world_size=2))
        async for request in heard:
            if request.HasField("entry"):
                self.said.append(request.entry)
                break
        if len(self.said) > 1:
            yield WorkerSessionResponse(entry=request.entry)
            async for _ in heard:
                pass


class BrokenLine(TrainerServiceServicer):
    """Asks a worker that has finished to prepare, as a trainer started anew does; then the line breaks."""

    def __init__(self) -> None:
        self.words: list[list[str]] = []
        self.prepared, self.done = asyncio.Event(), asyncio.Event()

    async def WorkerSession(  # noqa: N802  # the schema's name
        self, request_iterator: AsyncIterator[WorkerSessionRequest], context: Any
    ) -> AsyncIterator[WorkerSessionResponse]:
        words: list[str] = []
        self.words.append(words)
        yield WorkerSessionResponse(prepare=PrepareWorker(beat_interval_s=60.0))
        async for request in request_iterator:
            words.append(str(request.WhichOneof("message")))
            if len(self.words) == 1 and words[-1] == "prepared":
                await context.abort(grpc.StatusCode.UNAVAILABLE, "the trainer died")
            if len(self.words) == 2 and words[-1] == "finished":
                break
        yield WorkerSessionResponse(end=EndWorker(reason="the test is over"))
        self.done.set()


class Announcing(TrainerServiceServicer):
    """Announces generation 2, tells its workers to leave it, asks for a save, and waits."""

    async def WorkerSession(  # noqa: N802  # the schema's name
        self, request_iterator: AsyncIterator[WorkerSessionRequest], context: Any
    ) -> AsyncIterator[WorkerSessionResponse]:
        yield WorkerSessionResponse(configure=ConfigureGeneration(generation=2))
        yield WorkerSessionResponse(abort=AbortGeneration(generation=2))
        yield WorkerSessionResponse(save=SaveState())
        async for _ in request_iterator:
            pass


class Refusing(TrainerServiceServicer):
    """Knows no worker with this secret."""

    def __init__(self) -> None:
        self.secret = ""

    async def WorkerSession(  # noqa: N802  # the schema's name
        self, request_iterator: AsyncIterator[WorkerSessionRequest], context: Any
    ) -> AsyncIterator[WorkerSessionResponse]:
        self.secret = (await anext(aiter(request_iterator))).hello.secret
        await context.abort(grpc.StatusCode.PERMISSION_DENIED, "it is not this worker")
        yield WorkerSessionResponse()


async def test_a_worker_shows_its_secret_and_ends_when_the_trainer_refuses_it() -> None:
    async with served(Refusing()) as (trainer, session):
        session.start()
        async with asyncio.timeout(30):
            command = await asyncio.to_thread(session.commands.get)
        assert isinstance(command, EndWorker)
        assert command.reason.startswith("the trainer refuses this worker: ")
        assert command.reason.endswith("it is not this worker")
        assert trainer.secret == "5" * 64


async def test_a_worker_that_has_finished_says_so_again_after_each_break() -> None:
    """A trainer that died twice heard of it only once: the answer to "prepare" had taken the word's place."""
    async with served(BrokenLine()) as (trainer, session):
        session.say(WorkerSessionRequest(finished=WorkerFinished(generation=1)))
        session.start()
        async with asyncio.timeout(30):
            await asyncio.to_thread(session.commands.get)
            session.answer(WorkerSessionRequest(prepared=WorkerPrepared(training_samples=1)))
            await trainer.done.wait()
        assert trainer.words[0][:2] == ["hello", "finished"]
        assert trainer.words[1][:2] == ["hello", "finished"]


class Listener(TrainerServiceServicer):
    """Keeps what a worker says up to its checkpoint, and ends it."""

    def __init__(self) -> None:
        self.words: list[str] = []
        self.done = asyncio.Event()

    async def WorkerSession(  # noqa: N802  # the schema's name
        self, request_iterator: AsyncIterator[WorkerSessionRequest], context: Any
    ) -> AsyncIterator[WorkerSessionResponse]:
        yield WorkerSessionResponse(prepare=PrepareWorker(beat_interval_s=60.0))
        async for request in request_iterator:
            self.words.append(str(request.WhichOneof("message")))
            if request.HasField("checkpoint"):
                break
        yield WorkerSessionResponse(end=EndWorker(reason="the test is over"))
        self.done.set()


async def test_the_steps_in_a_checkpoint_are_reported_before_it() -> None:
    """The last worker, which was not the one that reports, would leave a gap in the ledger."""
    async with served(Listener()) as (trainer, session):
        session.progress.add(StepProgress(step=3))
        session.progress.add(StepProgress(step=4))
        session.start()
        async with asyncio.timeout(30):
            await asyncio.to_thread(session.commands.get)
            session.report_checkpoint(Checkpoint(step=4))
            await trainer.done.wait()
        assert trainer.words == ["hello", "steps", "checkpoint"]


@pytest.fixture(autouse=True)
def no_session_is_left(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A session that goes on would draw its pauses beside other tests."""
    begun = list[TrainerSession]()
    start = TrainerSession.start

    def noted(session: TrainerSession) -> None:
        begun.append(session)
        start(session)

    monkeypatch.setattr(TrainerSession, "start", noted)
    yield
    for session in begun:
        session._thread.join(30)
        assert not session._thread.is_alive()


def assignment_to(port: int) -> Assignment:
    """Of a worker whose trainer is at this port."""
    work = Work(f"127.0.0.1:{port}", "digits")
    return Assignment("worker-1", "job-1", work, "", 0, "cpu", 0, "", 1, "", "5" * 64)


@asynccontextmanager
async def served(trainer: T) -> AsyncIterator[tuple[T, TrainerSession]]:
    """The trainer at a port of its own, and a worker's session with it that has not begun."""
    server = aio.server()
    add_TrainerServiceServicer_to_server(trainer, server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        session = TrainerSession(assignment_to(port), lambda abort: None, is_tls=True)
        yield trainer, session
    finally:
        session.leave("the test is over", 0.0)  # its thread ends when it finds no trainer
        await server.stop(None)


async def test_a_worker_that_has_to_leave_goes_without_a_trainer_that_is_away() -> None:
    async with served(Trainer()) as (_, session):
        pass
    session.start()
    async with asyncio.timeout(30):
        assert isinstance(await asyncio.to_thread(session.commands.get), EndWorker)


async def test_each_try_to_come_back_dials_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """A channel that has failed makes its callers wait for attempts of its own, which come ever later."""
    dialled, seen, enough = list[str](), list[int](), threading.Event()

    class Noted(Dialer):
        def trainer(self, address: str) -> TrainerPeer:
            dialled.append(address)
            return super().trainer(address)

    class Counted(Backoff):
        def next_pause_s(self) -> float:
            seen.append(len(dialled))
            if len(seen) == TRIES:
                enough.set()
            return min(super().next_pause_s(), 0.05)

    monkeypatch.setattr("peerloom.worker.session_ground.Dialer", Noted)
    monkeypatch.setattr("peerloom.worker.trainer_session.Backoff", Counted)
    async with served(Trainer()) as (_, session):
        pass
    session.start()
    assert await asyncio.to_thread(enough.wait, 30)
    assert seen[:TRIES] == list(range(1, TRIES + 1))


async def test_what_a_member_said_is_said_again_to_a_trainer_that_is_back() -> None:
    async with served(Restarted()) as (trainer, session):
        session.start()
        async with asyncio.timeout(30):
            await asyncio.to_thread(session.commands.get)
            entries = session.entries.of(1)
            entries.set("0/0", b"here")
            assert await asyncio.to_thread(entries.get, "0/0", 30.0) == b"here"
    assert trainer.said == [StoreEntry(generation=1, key="0/0", value=b"here")] * 2
    assert [hello.is_tls for hello in trainer.hellos] == [True, True]


async def test_a_generation_may_be_over_before_its_worker_enters_it() -> None:
    """Its training thread has not come to it: nobody but the session knows that it was told to leave."""
    async with served(Announcing()) as (_, session):
        session.start()
        async with asyncio.timeout(30):
            kinds = [type(await asyncio.to_thread(session.commands.get)) for _ in range(2)]
        assert kinds == [ConfigureGeneration, SaveState]
        assert session.why_over(1) == "a newer generation takes its place"
        assert session.why_over(2) == "the trainer told its workers to leave it"
        assert session.why_over(3) == ""


async def test_each_word_of_the_trainer_is_answered_by_one_sign_of_life() -> None:
    async with served(Trainer()) as (trainer, session):
        session.start()
        async with asyncio.timeout(30):
            await trainer.done.wait()
        assert trainer.beats_after_word == [1] * WORDS
