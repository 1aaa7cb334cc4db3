"""The peers of one fetch: holders are found, asked for their manifest, dropped, and asked again later."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from peerloom.artifacts.fetch.sources import PeerChannels, Source, ask_manifest, held_of, meet, worst_of
from peerloom.errors import DataLossError, DeadlineError, NotFoundError, PeerloomError, UnavailableError
from peerloom.kit.clock import Clock
from peerloom.kit.dialing import RegistryPeer
from peerloom.v1.artifact_pb2 import ArtifactHolder
from peerloom.v1.registry_pb2 import ListHoldersRequest

FindHolders = Callable[[str], Awaitable[Sequence[ArtifactHolder]]]
ASKED = 20
_CALL_S = 5.0
PEER_LIMIT = 8
_GRACE_S = 1.0
_FIND_AGAIN_S = 2.0
_MEET_AGAIN_S = 3.0


def holders_at(registry: RegistryPeer, but_not: Callable[[], str] = lambda: "") -> FindHolders:
    """Asks this registry each time; `but_not` gives the id of a node to leave out, the asker's own."""

    async def find(digest: str) -> list[ArtifactHolder]:
        request = ListHoldersRequest(digest=digest, limit=ASKED)
        answer = await registry.call(registry.stub.ListHolders, request, _CALL_S)
        return [holder for holder in answer.holders if holder.node_id != but_not()]

    return find


class Peers:
    """The holders that may be asked for an artifact's chunks.

    `sources` are those that told a manifest, by address; `known` are holders named beforehand, `find` names
    others.
    """

    def __init__(
        self,
        digest: str,
        known: Sequence[ArtifactHolder],
        find: FindHolders,
        channels: PeerChannels,
        clock: Clock,
    ) -> None:
        self._digest, self._known, self._find, self._channels = digest, list(known), find, channels
        self._clock = clock
        self.sources: dict[str, Source] = {}
        self._dropped: list[Source] = []
        self._banned: set[str] = set()
        self._errors: dict[str, PeerloomError] = {}
        self._again_s: dict[str, float] = {}
        self._meeting: dict[str, asyncio.Task[None]] = {}
        self._found_s = float("-inf")

    async def meet_first(self, patience_s: float) -> None:
        """Returns when at least one holder told a manifest, and the others had a second for it.

        Raises NotFoundError when nobody holds the artifact, else what kept the holders from answering.
        """
        end_s = self._clock.monotonic_s() + patience_s
        while not self.sources:
            await self.look(now=True)
            if self._meeting:
                meeting = list(self._meeting.values())
                await asyncio.wait(meeting, return_when=asyncio.FIRST_COMPLETED)
            elif self._is_hopeless() or self._clock.monotonic_s() > end_s:
                raise self.why_nobody()
            else:
                await asyncio.sleep(0.2)
        # A manifest of several chunks may lie, and is better compared; that of one proves itself.
        if self._meeting and any(len(s.manifest.chunk_digests) > 1 for s in self.sources.values()):
            await asyncio.wait(list(self._meeting.values()), timeout=_GRACE_S)

    async def look(self, *, now: bool = False) -> None:
        """Looks for holders, at most every 2 s unless `now`, and begins to meet those that are new."""
        at_s = self._clock.monotonic_s()
        if now or not self.sources or at_s - self._found_s > _FIND_AGAIN_S:
            self._found_s = at_s
            try:
                found = list(await self._find(self._digest))
                self._errors.pop("", None)
            except PeerloomError as error:
                found, self._errors[""] = [], error
            self._known = list({one.address: one for one in [*self._known, *found]}.values())
        for holder in self._known:
            if len(self.sources) + len(self._meeting) >= PEER_LIMIT:
                return
            if self._may_meet(holder.address, at_s):
                self._meeting[holder.address] = asyncio.create_task(self._meet(holder))

    def has_hope(self) -> bool:
        """Whether somebody is being met, or may be met again later."""
        return bool(self._meeting) or any(
            one.address not in self._banned and not self._is_refused(one.address) for one in self._known
        )

    async def refresh(self) -> None:
        """Asks partial holders which chunks they have now."""
        for source in list(self.sources.values()):
            if source.held is not None:
                try:
                    answer = await ask_manifest(source.peer, self._digest, self._channels)
                except PeerloomError:
                    continue  # whoever asks it for a chunk will see
                source.held = held_of(answer)

    def drop(self, address: str, reason: str, *, for_ever: bool) -> Source | None:
        """Forgets a holder, for ever or until it had a rest."""
        source = self.sources.pop(address, None)
        if source is not None:
            self._dropped.append(source)
        if for_ever:
            self._banned.add(address)
            self._errors[address] = DataLossError(f"{address}: {reason}")
        else:
            self._errors[address] = UnavailableError(f"{address}: {reason}")
            self._again_s[address] = self._clock.monotonic_s() + _MEET_AGAIN_S
        return source

    def all_met(self) -> list[Source]:
        """All that were ever met."""
        return [*self._dropped, *self.sources.values()]

    def givers(self) -> tuple[ArtifactHolder, ...]:
        """Who sent good bytes, each once."""
        gave = {one.holder.address: one.holder for one in self.all_met() if one.received_bytes}
        return tuple(gave.values())

    def why_nobody(self) -> PeerloomError:
        """Why there is nobody to ask."""
        for kind in (DataLossError, UnavailableError, DeadlineError):
            errors = [error for error in self._errors.values() if isinstance(error, kind)]
            if errors:
                lied = kind is DataLossError
                what = "Those who hold it sent wrong bytes" if lied else "Its holders can't be reached"
                return kind(
                    f"The artifact {self._digest} can't be fetched. {what}: {worst_of(errors)}.",
                    reason="NO_HONEST_HOLDER" if lied else "HOLDERS_UNREACHABLE",
                )
        return NotFoundError(
            f"Nobody holds the artifact {self._digest}. Check the digest, or put the file in again.",
            reason="ARTIFACT_NOT_FOUND",
            metadata={"kind": "artifact", "name": self._digest},
        )

    def why_stuck(self, missing: int) -> PeerloomError:
        """Why a fetch that had begun can't go on."""
        if self._errors and all(isinstance(one, DataLossError) for one in self._errors.values()):
            return self.why_nobody()
        known = worst_of(self._errors.values()) or "those who hold it send nothing"
        return UnavailableError(
            f"{missing:,} chunks of the artifact {self._digest} are missing, and nobody sends them: {known}. "
            "What has come is kept; try again later.",
            reason="HOLDERS_GONE",
        )

    async def close(self) -> None:
        """Ends what is under way and gives the channels back."""
        meeting = list(self._meeting.values())
        for task in meeting:
            task.cancel()
        await asyncio.gather(*meeting, return_exceptions=True)
        for source in self.all_met():
            await source.close()
            await self._channels.release(source.holder.address)

    def _may_meet(self, address: str, at_s: float) -> bool:
        if address in self.sources or address in self._meeting or address in self._banned:
            return False
        return at_s >= self._again_s.get(address, 0.0)

    def _is_refused(self, address: str) -> bool:
        return isinstance(self._errors.get(address), NotFoundError)

    def _is_hopeless(self) -> bool:
        """Nobody is named, or all who are say that they don't hold it."""
        if "" in self._errors:
            return False
        return all(one.address in self._banned or self._is_refused(one.address) for one in self._known)

    async def _meet(self, holder: ArtifactHolder) -> None:
        try:
            self.sources[holder.address] = await meet(holder, self._digest, self._channels)
            self._errors.pop(holder.address, None)
        except DataLossError as error:
            self._banned.add(holder.address)
            self._errors[holder.address] = error
        except PeerloomError as error:
            self._errors[holder.address] = error
            self._again_s[holder.address] = self._clock.monotonic_s() + _MEET_AGAIN_S
        finally:
            del self._meeting[holder.address]
