"""Follows the registry's log of events, over broken streams, restarts and a change of registry."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from typing import Any

from peerloom.errors import FailedPreconditionError, InvalidArgumentError, PeerloomError, UnavailableError
from peerloom.kit.backoff import Backoff
from peerloom.kit.dialing import RegistryPeer
from peerloom.kit.logs import get_logger
from peerloom.services.selector.catalog.entries import Cursor, NodeEvent
from peerloom.services.selector.catalog.writer import CatalogWriter
from peerloom.services.selector.messages import event_from_message
from peerloom.v1.registry_pb2 import WatchNodesRequest, WatchNodesResponse

_log = get_logger()
MAX_BATCH = 500  # events in one transaction; more delays the evidence of others behind it
FIRST_PAUSE_S = 0.1
LONGEST_PAUSE_S = 2.0
CATCH_UP_LIMIT_S = 60.0
CHECK_LIMIT_S = 5.0


class Follower:
    """Applies every event once, in order, in batches when there are many; knows whether it is connected."""

    def __init__(
        self,
        registry: RegistryPeer,
        writer: CatalogWriter,
        cursor: Cursor,
        sleep: Callable[[float], Awaitable[Any]] = asyncio.sleep,
    ) -> None:
        self._registry = registry
        self._writer = writer
        self._cursor = cursor
        self._sleep = sleep
        self._backoff = Backoff(FIRST_PAUSE_S, LONGEST_PAUSE_S)
        self._trouble = "not reached yet"
        self._moved = asyncio.Event()
        self.caught_up = asyncio.Event()

    @property
    def is_following(self) -> bool:
        """Whether the registry's log was read to its end and is being followed."""
        return not self._trouble

    @property
    def sequence(self) -> int:
        """The number of the newest event that was applied."""
        return self._cursor.sequence

    async def probe(self) -> None:
        """Raises UnavailableError while the registry isn't followed, so that the service's health says so."""
        if self._trouble:
            where = f"the registry at {self._registry.address}"
            raise UnavailableError(f"{where} isn't followed: {self._trouble}")

    async def reach_present(self, limit_s: float) -> bool:
        """Returns once all that the registry's log has by now is applied: whether there was anything new.

        Raises UnavailableError while the log isn't followed, or when it takes longer than `limit_s` seconds.
        """
        await self.probe()
        known = newest = self._cursor.sequence
        request = WatchNodesRequest(after_sequence=known, stop_at_present=True)
        stream = self._registry.stream(self._registry.stub.WatchNodes, request, limit_s)
        try:
            async with asyncio.timeout(limit_s):
                async with aclosing(stream) as messages:
                    async for message in messages:
                        newest = message.sequence
                while self._cursor.sequence < newest:
                    await self._moved.wait()
        except (PeerloomError, TimeoutError) as error:
            why = error.message if isinstance(error, PeerloomError) else "its newest events are still to come"
            where = f"the registry at {self._registry.address}"
            raise UnavailableError(
                f"{where} has nodes that aren't known here yet, or may have: {why}"
            ) from error
        return newest > known

    async def follow_forever(self) -> None:
        """Follows until cancelled; after a failure it tries again, with growing pauses."""
        while True:
            trouble = await self._follow_until_trouble()
            if not self._trouble:
                self._backoff.succeeded()
            if trouble != self._trouble:
                _log.warning("registry_not_followed", registry=self._registry.address, reason=trouble)
            self._trouble = trouble
            await self._sleep(self._backoff.next_pause_s())

    async def _follow_until_trouble(self) -> str:
        try:
            await self._follow()
            return "it ended its stream"
        except PeerloomError as error:
            return error.message
        except Exception as error:
            # A bug must show in health and log, and not end the following for good.
            _log.error("following_crashed", exc_info=error)
            return f"a bug of ours ({type(error).__name__}); the log has more"

    async def _follow(self) -> None:
        """Reads past events, then live ones until the stream ends. Raises a PeerloomError."""
        if self._cursor.sequence and not await self._is_our_log():
            _log.warning("registry_changed", registry=self._registry.address, read=self._cursor.sequence)
            await self._writer.start_again()
            self._cursor = Cursor()
        await self._read(stop_at_present=True)
        if self._trouble:
            _log.info("registry_followed", registry=self._registry.address, sequence=self._cursor.sequence)
        self._trouble = ""
        self.caught_up.set()
        await self._read(stop_at_present=False)

    async def _is_our_log(self) -> bool:
        """Whether the last event that we read is still there: another database has another, or none."""
        request = WatchNodesRequest(after_sequence=self._cursor.sequence - 1, stop_at_present=True)
        try:
            async with aclosing(
                self._registry.stream(self._registry.stub.WatchNodes, request, CHECK_LIMIT_S)
            ) as messages:
                async for message in messages:
                    return Cursor(message.registry_id, message.sequence) == self._cursor
        except (InvalidArgumentError, FailedPreconditionError):
            return False  # its log is shorter, or it has forgotten this part of it
        return False

    async def _read(self, *, stop_at_present: bool) -> None:
        request = WatchNodesRequest(after_sequence=self._cursor.sequence, stop_at_present=stop_at_present)
        limit_s = CATCH_UP_LIMIT_S if stop_at_present else None
        stream = self._registry.stream(self._registry.stub.WatchNodes, request, limit_s)
        async with aclosing(stream) as messages, aclosing(_batches(messages)) as batches:
            async for batch in batches:
                await self._apply([event_from_message(message) for message in batch])

    async def _apply(self, events: list[NodeEvent]) -> None:
        at = self._cursor
        for event in events:
            if at.sequence and event.registry_id != at.registry_id:
                raise UnavailableError("another registry answers at its address")
            if event.sequence <= at.sequence:
                raise UnavailableError(f"it sent event {event.sequence} after event {at.sequence}")
            at = Cursor(event.registry_id, event.sequence)
        await self._writer.follow(events)
        self._cursor = at
        self._moved.set()
        self._moved = asyncio.Event()


async def _batches(messages: AsyncIterator[WatchNodesResponse]) -> AsyncGenerator[list[WatchNodesResponse]]:
    """The messages that have arrived since the last batch, at least one and at most MAX_BATCH."""
    queue: asyncio.Queue[WatchNodesResponse | None] = asyncio.Queue(MAX_BATCH)
    reader = asyncio.create_task(_fill(queue, messages))
    try:
        while (message := await queue.get()) is not None:
            batch = [message]
            while not queue.empty() and (message := queue.get_nowait()) is not None:
                batch.append(message)
            yield batch
            if message is None:
                break
        await reader
    finally:
        reader.cancel()
        await asyncio.gather(reader, return_exceptions=True)


async def _fill(
    queue: asyncio.Queue[WatchNodesResponse | None], messages: AsyncIterator[WatchNodesResponse]
) -> None:
    """Puts None last, also when reading fails; not when it is cancelled, since nobody reads then."""
    try:
        async for message in messages:
            await queue.put(message)
    except Exception:
        await queue.put(None)
        raise
    await queue.put(None)
