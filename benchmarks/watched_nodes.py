"""What a watcher of the registry's events sees: which nodes were suspected or lost, and when."""

import asyncio
import threading
import time
from collections import Counter
from contextlib import suppress

from peerloom.errors import PeerloomError
from peerloom.kit.dialing import Dialer
from peerloom.v1.registry_pb2 import (
    NODE_EVENT_KIND_INTERRUPTED,
    NODE_EVENT_KIND_SUSPECTED,
    WatchNodesRequest,
    WatchNodesResponse,
)

_AGAIN_S, _LOOK_S = 0.2, 0.1


class WatchedNodes:
    """Follows the registry at host:port in a thread of its own until the block ends, also over restarts."""

    def __init__(self, address: str) -> None:
        self._address, self._ended = address, threading.Event()
        self._sequence = 0
        self._seen: list[tuple[float, int, str]] = []
        self._thread = threading.Thread(target=lambda: asyncio.run(self._follow()), name="watcher")

    def __enter__(self) -> "WatchedNodes":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def interrupted(self) -> Counter[str]:
        """How often each node was declared dead, by name."""
        return self._named(NODE_EVENT_KIND_INTERRUPTED, 0.0)

    def wait_until_interrupted(self, names: set[str], since_s: float, limit_s: float) -> float:
        """Until all of these were declared dead: when the last was told of, in seconds after `since_s`.

        `since_s` is monotonic.
        """
        return self._wait(NODE_EVENT_KIND_INTERRUPTED, names, since_s, limit_s)

    def wait_until_suspected(self, names: set[str], since_s: float, limit_s: float) -> float:
        """Until all of these were suspected: when the last was told of, in seconds after `since_s`."""
        return self._wait(NODE_EVENT_KIND_SUSPECTED, names, since_s, limit_s)

    def _wait(self, kind: int, names: set[str], since_s: float, limit_s: float) -> float:
        while missing := names - self._named(kind, since_s).keys():
            if time.monotonic() > since_s + limit_s:
                raise SystemExit(
                    f"error: {len(missing):,} of {len(names):,} nodes weren't told of in {limit_s:g} s"
                )
            time.sleep(_LOOK_S)
        return max(at for at, of_kind, name in self._seen if of_kind == kind and name in names) - since_s

    def _named(self, kind: int, since_s: float) -> Counter[str]:
        return Counter(name for at, of_kind, name in list(self._seen) if of_kind == kind and at >= since_s)

    async def _follow(self) -> None:
        following = asyncio.create_task(self._follow_for_ever())
        await asyncio.to_thread(self._ended.wait)
        following.cancel()
        with suppress(asyncio.CancelledError):
            await following

    async def _follow_for_ever(self) -> None:
        async with Dialer().registry(self._address) as registry:
            while True:
                request = WatchNodesRequest(after_sequence=self._sequence)
                with suppress(PeerloomError):
                    async for event in registry.stream(registry.stub.WatchNodes, request):
                        self._note(event)
                await asyncio.sleep(_AGAIN_S)

    def _note(self, event: WatchNodesResponse) -> None:
        self._sequence = event.sequence
        if event.kind in (NODE_EVENT_KIND_SUSPECTED, NODE_EVENT_KIND_INTERRUPTED):
            self._seen.append((time.monotonic(), event.kind, event.node.spec.name))
