"""Tells the registry which artifacts are here: changes only, or all when the registry knows nothing."""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

from peerloom.errors import PeerloomError
from peerloom.kit.dialing import RegistryPeer
from peerloom.kit.logs import get_logger
from peerloom.v1.registry_pb2 import AdvertiseArtifactsRequest

ADVERTISED_LIMIT = 10_000  # what the registry takes of one node
_PAUSE_S = 0.1
_CALL_S = 10.0
_SETTLE_S = 2.0
_log = get_logger()


@dataclass(frozen=True)
class Advertisement:
    """A set of digests and the number of the change that made it so."""

    version: int = 0
    digests: frozenset[str] = frozenset()


@dataclass(frozen=True)
class AdvertisedChange:
    """What to tell; `base` 0: `added` is all."""

    base: int
    added: frozenset[str]
    removed: frozenset[str]


def change_to_tell(now: Advertisement, told: Advertisement, known_version: int) -> AdvertisedChange | None:
    """The change from what the registry knows to what is here `now`; None when the registry knows.

    `told` is what it acknowledged last, `known_version` what it says to know.
    """
    if known_version == now.version or (not known_version and not now.digests):
        return None
    if known_version and known_version == told.version:
        return AdvertisedChange(told.version, now.digests - told.digests, told.digests - now.digests)
    return AdvertisedChange(0, now.digests, frozenset())


class PendingChanges:
    """What is still to be told: made before the store that notes changes here and the advertiser that tells.

    `note` may be called from any thread. Belongs to the event loop in which it was made.
    """

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._noted, self._urgent = asyncio.Event(), asyncio.Event()
        self._told = asyncio.Event()  # set when the next telling is over, which another event then stands for
        self._is_heard = False

    def note(self) -> None:
        """An artifact came or went."""
        self._loop.call_soon_threadsafe(self._noted.set)

    async def settle(self) -> None:
        """Has them told now, and returns when the registry knows; after 2 s, or while it is away, later."""
        if not self._is_heard:
            return
        told = self._told  # of the next telling: one under way may have looked before the change
        self._urgent.set()
        self._noted.set()
        with suppress(TimeoutError):
            await asyncio.wait_for(told.wait(), _SETTLE_S)

    async def take(self) -> asyncio.Event:
        """Waits until there is something to tell, and a moment longer, as changes come in crowds.

        Returns what has to be set once it is told.
        """
        await self._noted.wait()
        with suppress(TimeoutError):
            await asyncio.wait_for(self._urgent.wait(), _PAUSE_S)
        self._noted.clear()
        self._urgent.clear()
        told, self._told = self._told, asyncio.Event()
        return told

    def note_heard(self, is_heard: bool) -> None:
        """Whether the registry takes what is told; while it doesn't, nobody waits for it."""
        self._is_heard = is_heard


class Advertiser:
    """Keeps the registry's knowledge of this node's artifacts current.

    `digests` tells what is here, least recently used first.
    """

    def __init__(
        self, registry: RegistryPeer, digests: Callable[[], tuple[str, ...]], pending: PendingChanges
    ) -> None:
        self._registry, self._digests, self._pending = registry, digests, pending
        self._lease_id = ""
        self._now, self._told = Advertisement(), Advertisement()
        self._known_version = 0
        self._mismatches = 0
        self._is_heard = True
        pending.note()

    @property
    def version(self) -> int:
        """The number of the newest change, for the heartbeats."""
        return self._now.version

    def hear(self, lease_id: str, known_version: int) -> None:
        """A heartbeat was answered: the registry knows this version of ours.

        One answer may have been under way while we told more, so only a second one is believed.
        """
        if lease_id != self._lease_id:
            self._lease_id, self._told, self._mismatches = lease_id, Advertisement(), 1
            self._pending.note_heard(self._is_heard)
        self._mismatches = self._mismatches + 1 if known_version != self._now.version else 0
        if self._mismatches > 1:
            self._known_version = known_version
            self._pending.note()

    async def keep(self) -> None:
        """Tells each change soon after it was made, until cancelled."""
        while True:
            told = await self._pending.take()
            await self._tell()
            told.set()

    async def _tell(self) -> None:
        digests = frozenset(self._digests()[-ADVERTISED_LIMIT:])
        if digests != self._now.digests:
            self._now = Advertisement(self._now.version + 1, digests)
        now = self._now
        change = change_to_tell(now, self._told, self._known_version)
        if change is None or not self._lease_id:
            return
        request = AdvertiseArtifactsRequest(
            lease_id=self._lease_id,
            version=now.version,
            base_version=change.base,
            added=[bytes.fromhex(digest) for digest in sorted(change.added)],
            removed=[bytes.fromhex(digest) for digest in sorted(change.removed)],
        )
        try:
            await self._registry.call(self._registry.stub.AdvertiseArtifacts, request, _CALL_S)
            self._is_heard = True
            self._told, self._known_version, self._mismatches = now, now.version, 0
        except PeerloomError as error:  # the next beats show what the registry knows, and we tell again
            _log.info("artifacts_not_advertised", reason=error.message)
            self._is_heard = False
        self._pending.note_heard(self._is_heard)
