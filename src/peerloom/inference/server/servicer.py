"""InferenceService: translates between messages and the server's own types."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing, suppress
from typing import Any

from grpc import aio

from peerloom.artifacts.named_holders import check_holders
from peerloom.errors import (
    AlreadyExistsError,
    DeadlineError,
    InvalidArgumentError,
    NotFoundError,
    PeerloomError,
)
from peerloom.inference.server.batch_queue import BatchQueue
from peerloom.inference.server.caller_evidence import CallerEvidence
from peerloom.inference.server.config import InferenceConfig
from peerloom.inference.server.input_checks import checked_inputs
from peerloom.inference.server.links import StageChannels, StageLink, StreamLink
from peerloom.inference.server.model_cache import LoadedPart, ModelCache
from peerloom.inference.server.stage_sessions import StageSession
from peerloom.kit.call_limits import CallSlots
from peerloom.kit.checks import check_address, check_digest, check_line
from peerloom.kit.clock import Clock
from peerloom.kit.dialing import Dialer
from peerloom.kit.tensors import array_of, message_of
from peerloom.v1.inference_pb2 import (
    GetInferenceStatusRequest,
    GetInferenceStatusResponse,
    InferRequest,
    InferResponse,
    LinkLost,
    LoadModelRequest,
    LoadModelResponse,
    ModelDescription,
    OpenStage,
    PassActivationsRequest,
    PassActivationsResponse,
    RunStageRequest,
    RunStageResponse,
    StageOpened,
)
from peerloom.v1.inference_pb2_grpc import InferenceServiceServicer

SESSION_IDLE_S = 600.0  # between two messages of a session's client
OPEN_LIMIT_S = 60.0  # for a session whose first activation has come; its model may have to be loaded again
_Context = aio.ServicerContext[Any, Any]


class InferenceServicer(InferenceServiceServicer):
    """Translates; `batching` decides, `model_cache`, `batch_queue` and `sessions` do."""

    def __init__(
        self,
        config: InferenceConfig,
        models: ModelCache,
        evidence: CallerEvidence | None,
        dialer: Dialer,
        clock: Clock,
    ) -> None:
        self._config, self._models = config, models
        self._evidence, self._clock = evidence, clock
        self._descriptions: dict[str, ModelDescription] = {}
        self._queues: dict[LoadedPart, BatchQueue] = {}
        self._sessions: dict[str, StageSession] = {}
        self._opened = asyncio.Condition()
        self._answered = 0
        self._channels = StageChannels(dialer)
        limit = config.session_limit
        self._slots = CallSlots("sessions of split models", limit, limit_of_host=max(1, limit // 2))

    async def close(self) -> None:
        """Closes the channels to other servers."""
        await self._channels.close()

    async def LoadModel(self, request: LoadModelRequest, context: _Context) -> LoadModelResponse:
        check_digest("digest", request.digest)
        check_holders("holders", request.holders)
        model, fetch_s = await self._models.model(request.digest, request.holders)
        if request.digest not in self._descriptions:
            self._descriptions[request.digest] = await model.describe()
        answer = LoadModelResponse(model=self._descriptions[request.digest], fetch_s=fetch_s)
        if not request.describe_only:
            first, end = request.first_layer, request.end_layer
            _, _, answer.build_s = await self._models.load(request.digest, first, end)
        return answer

    async def Infer(self, request: InferRequest, context: _Context) -> InferResponse:
        check_digest("digest", request.digest)
        check_line("caller", request.caller, high=64)
        array = array_of(request.inputs)
        model, _ = await self._models.model(request.digest)
        inputs = checked_inputs(array, model.origin)
        loaded, _, _ = await self._models.load(request.digest)
        self._models.hold(loaded.part)
        try:
            answer = await self._queue(loaded).infer(inputs, context.time_remaining())
        finally:
            self._models.release(loaded.part)
        self._answered += 1
        outputs = message_of(answer.outputs, "outputs")
        self._note_caller(request.caller, len(request.inputs.content) + len(outputs.content))
        return InferResponse(
            outputs=outputs,
            queue_s=answer.queue_s,
            model_s=answer.model_s,
            batch_samples=answer.batch_samples,
        )

    async def RunStage(
        self, request_iterator: AsyncIterator[RunStageRequest], context: _Context
    ) -> AsyncIterator[RunStageResponse]:
        with self._slots.taken_by(context.peer()):
            first = await _next(aiter(request_iterator))
            if first is None or first.WhichOneof("message") != "open":
                raise InvalidArgumentError.of_field("message", "not open", "open in the first message")
            session = await self._open(first.open)
            async with aclosing(self._responses(session, request_iterator)) as responses:
                async for response in responses:
                    yield response

    async def _responses(
        self, session: StageSession, request_iterator: AsyncIterator[RunStageRequest]
    ) -> AsyncGenerator[RunStageResponse]:
        following = asyncio.create_task(self._follow(session, request_iterator))
        try:
            yield RunStageResponse(opened=StageOpened())
            while (response := await session.responses.get()) is not None:
                if isinstance(response, PeerloomError):
                    raise response
                yield response
        finally:
            following.cancel()
            with suppress(asyncio.CancelledError):
                await following
            del self._sessions[session.session_id]
            self._models.release(session.part)
            await session.close()

    async def PassActivations(
        self, request_iterator: AsyncIterator[PassActivationsRequest], context: _Context
    ) -> PassActivationsResponse:
        received = 0
        async for request in request_iterator:
            session = self._sessions.get(request.session_id) or await self._session(request.session_id)
            await session.take(request.activation)
            received += 1
        return PassActivationsResponse(received=received)

    async def GetInferenceStatus(
        self, request: GetInferenceStatusRequest, context: _Context
    ) -> GetInferenceStatusResponse:
        answer = GetInferenceStatusResponse(
            memory_limit_bytes=self._models.limit_bytes,
            memory_used_bytes=self._models.used_bytes,
            sessions=len(self._sessions),
            answered=self._answered,
        )
        for loaded in self._models.loaded:
            part = loaded.part
            answer.models.add(
                digest=part.digest,
                first_layer=part.first,
                end_layer=part.end,
                memory_bytes=part.memory_bytes,
                seconds_per_sample=loaded.seconds_per_sample,
            )
            queue = self._queue(loaded)
            answer.queued_samples += queue.samples
            answer.queue_s += queue.under_way_s + queue.samples * queue.seconds_per_sample
        return answer

    async def _open(self, request: OpenStage) -> StageSession:
        check_line("session_id", request.session_id, low=1, high=64)
        check_line("caller", request.caller, high=64)
        check_line("next_session_id", request.next_session_id, high=64)
        check_digest("digest", request.digest)
        if request.next_address:
            check_address("next_address", request.next_address)
        model, _ = await self._models.model(request.digest)
        if request.incremental and not model.context:
            limit = "false for a model that doesn't continue sequences"
            raise InvalidArgumentError.of_field("incremental", True, limit)
        loaded, _, _ = await self._models.load(request.digest, request.first_layer, request.end_layer)

        if request.session_id in self._sessions:  # asked now: others may have opened it meanwhile
            raise AlreadyExistsError(f"The session {request.session_id} is open here already.")

        def open_link(address: str, session_id: str, on_lost: Callable[[LinkLost], None]) -> StageLink:
            return StreamLink(session_id, address, self._channels, on_lost)

        part, incremental = loaded.part, request.incremental
        session = StageSession(request.session_id, part, open_link, incremental=incremental)
        if request.next_address:
            session.link(request.next_address, request.next_session_id)
        self._note_caller(request.caller, 0)
        self._models.hold(part)
        self._sessions[request.session_id] = session
        self._answered += 1
        async with self._opened:
            self._opened.notify_all()
        return session

    def _note_caller(self, caller: str, moved_bytes: int) -> None:
        if self._evidence is not None:
            self._evidence.served(caller, moved_bytes)

    async def _session(self, session_id: str) -> StageSession:
        """Nobody waits until all stages are open: the first activation may be here before the session."""
        check_line("session_id", session_id, low=1, high=64)
        try:
            async with asyncio.timeout(OPEN_LIMIT_S), self._opened:
                await self._opened.wait_for(lambda: session_id in self._sessions)
                return self._sessions[session_id]
        except TimeoutError:
            raise NotFoundError.of_name("session", session_id, ()) from None

    async def _follow(self, session: StageSession, requests: AsyncIterator[RunStageRequest]) -> None:
        try:
            while (request := await _next(aiter(requests))) is not None:
                match request.WhichOneof("message"):
                    case "input":
                        await session.take(request.input)
                    case "relink":
                        check_address("next_address", request.relink.next_address)
                        session.link(request.relink.next_address, request.relink.next_session_id)
                    case "acknowledge":
                        session.acknowledge(request.acknowledge.sequence)
                    case other:
                        raise InvalidArgumentError.of_field("message", other, "input, relink or acknowledge")
        except PeerloomError as error:
            await session.responses.put(error)
        await session.responses.put(None)

    def _queue(self, loaded: LoadedPart) -> BatchQueue:
        kept = self._models.loaded
        self._queues = {each: queue for each, queue in self._queues.items() if each in kept}
        if loaded not in self._queues:
            config = self._config
            self._queues[loaded] = BatchQueue(
                loaded, config.batch_samples, config.batch_wait_s, config.queue_samples, self._clock
            )
        return self._queues[loaded]


async def _next(requests: AsyncIterator[RunStageRequest]) -> RunStageRequest | None:
    try:
        async with asyncio.timeout(SESSION_IDLE_S):
            return await anext(requests, None)
    except TimeoutError:
        raise DeadlineError(
            f"Nothing came in this session for {SESSION_IDLE_S:g} s, so it has ended. Open another one.",
            reason="SESSION_IDLE",
        ) from None
