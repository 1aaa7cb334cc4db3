"""The registry's log of nodes over streams that break: each event once, in order, as long as one listens.

When the stream breaks the watch asks again, after a pause that doubles from 0.1 s to 2 s. It then asks for
the last event that it saw too, which is dropped: another registry at the same address, or one with another
database, has another event there or none, and its numbers mean something else. Past events are read first,
by a call that ends: so it is known that the registry answers, however long nothing happens to any node.
"""

from collections.abc import AsyncGenerator
from contextlib import aclosing

from peerloom.client.conversions.nodes import node_event_of
from peerloom.client.job_events import STREAM_LOST, Patience
from peerloom.client.remote_services import Services
from peerloom.client.types import NodeEvent
from peerloom.errors import FailedPreconditionError, InvalidArgumentError
from peerloom.kit.clock import Clock
from peerloom.v1.registry_pb2 import WatchNodesRequest


async def watch_registry(
    services: Services, after: int, patience_s: float, clock: Clock
) -> AsyncGenerator[NodeEvent, None]:
    """All events after the sequence number `after`, then live ones.

    Raises UnavailableError when the registry is away for `patience_s`, InvalidArgumentError for an `after`
    beyond its newest event, FailedPreconditionError (EVENTS_FORGOTTEN, REGISTRY_CHANGED) when what follows
    can't be told without a gap.
    """
    log, patience = _NodeLog(services, after), Patience(patience_s, clock)
    while True:
        try:
            async with aclosing(log.read(stop_at_present=True)) as past:
                async for event in past:
                    yield event
            patience.heard()
            async with aclosing(log.read(stop_at_present=False)) as live:
                async for event in live:
                    yield event
            await patience.pause()
        except STREAM_LOST as error:
            await patience.pause(error)


class _NodeLog:
    """One registry's log and how far it was read."""

    def __init__(self, services: Services, after: int) -> None:
        self._services, self._sequence = services, after
        self._registry_id = ""

    async def read(self, *, stop_at_present: bool) -> AsyncGenerator[NodeEvent, None]:
        known = self._sequence if self._registry_id else 0
        request = WatchNodesRequest(
            after_sequence=known - 1 if known else self._sequence, stop_at_present=stop_at_present
        )
        try:
            stream = self._services.registry.stream(lambda stub: stub.WatchNodes, request)
            async with aclosing(stream) as messages:
                async for message in messages:
                    event = node_event_of(message)
                    if known:
                        self._check_same(event, known)
                        known = 0
                        continue
                    self._registry_id, self._sequence = event.registry_id, event.sequence
                    yield event
        except InvalidArgumentError as error:
            if self._registry_id:
                raise self._changed() from error
            raise

    def _check_same(self, event: NodeEvent, known: int) -> None:
        if event.registry_id != self._registry_id:
            raise self._changed()
        if event.sequence != known:
            raise FailedPreconditionError(
                f"The registry has forgotten event {known}. Watch anew from 0, which tells of every node.",
                reason="EVENTS_FORGOTTEN",
            )

    def _changed(self) -> FailedPreconditionError:
        return FailedPreconditionError(
            "Another registry, or one with another database, answers at this address: its events have other "
            "numbers. Watch anew from 0, which tells of every node.",
            reason="REGISTRY_CHANGED",
            metadata={"after_sequence": str(self._sequence)},
        )
