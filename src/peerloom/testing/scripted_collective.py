"""The collectives of one generation, without their arithmetic: who came, who completes, and who breaks.

A step is complete once all members have come to it. Each of them learns of that in its own time, so that one
may hold a step that another, who lost the line in that moment, does not: as with a real all-reduce.
"""

import asyncio
import random
from collections.abc import Callable
from typing import Any, Protocol

from peerloom.testing.memory_network import MemoryNetwork

RECHECK_S = 0.1
STEP_SPREAD_S = 0.004


class CollectiveBrokenError(Exception):
    """This generation is over for its member."""


class MemberPlace(Protocol):
    """Where a member runs."""

    host: str
    is_dead: bool


class Membership:
    """One worker's part in one generation."""

    def __init__(self, collective: "Collective", rank: int, place: MemberPlace) -> None:
        self.collective, self.rank, self.place = collective, rank, place
        self.broken = ""
        self._leave_at: tuple[int, str] | None = None
        self._pending: asyncio.Future[dict[int, Any]] | None = None

    def check(self, step: int | None = None) -> None:
        """Raises if the generation broke, or this is the step to leave at."""
        if self.broken:
            raise CollectiveBrokenError(self.broken)
        if step is not None and self._leave_at is not None and step >= self._leave_at[0]:
            raise CollectiveBrokenError(self._leave_at[1])

    def leave_at(self, step: int, reason: str) -> None:
        """Asks to leave after this step."""
        self._leave_at = (step, reason)

    def break_(self, reason: str) -> None:
        """Whatever is under way, or comes, raises."""
        self.broken = self.broken or reason
        if self._pending is not None and not self._pending.done():
            self._pending.set_exception(CollectiveBrokenError(self.broken))

    async def gather(self, what: str, word: Any, limit_s: float) -> dict[int, Any]:
        """The words of all members, by rank, once all have come with the same `what`."""
        self.check()
        self._pending = self.collective.loop.create_future()
        self.collective.arrive(self, what, word, self._pending)
        try:
            async with asyncio.timeout(limit_s):
                return await self._pending
        except TimeoutError:
            raise CollectiveBrokenError("Timed out waiting for the others") from None
        finally:
            self._pending = None

    def close(self) -> None:
        """Leaves; whoever still waits for this member breaks."""
        self.collective.lost(self)


class Collective:
    """A generation's members as they meet under one prefix."""

    def __init__(
        self,
        network: MemoryNetwork,
        chance: random.Random,
        generation: int,
        size: int,
        on_complete: Callable[[str, list[MemberPlace]], None],
        on_mismatch: Callable[[str], None],
    ) -> None:
        self.generation = generation
        self.loop, self._network, self._chance, self._size = network.loop, network, chance, size
        self._on_complete, self._on_mismatch = on_complete, on_mismatch
        self._members: dict[int, Membership] = {}
        self._waiting: dict[int, tuple[str, Any, asyncio.Future[dict[int, Any]]]] = {}
        self._is_checking = False

    def join(self, member: Membership) -> None:
        """A member comes; one of the same rank that was here before is replaced."""
        self._members[member.rank] = member

    def arrive(
        self, member: Membership, what: str, word: Any, future: "asyncio.Future[dict[int, Any]]"
    ) -> None:
        """A member waits for the others."""
        self._waiting[member.rank] = (what, word, future)
        self._try()

    def lost(self, member: Membership) -> None:
        """A member died or left: the others learn of it soon, if they can be reached."""
        self._waiting.pop(member.rank, None)
        if self._members.get(member.rank) is not member:
            return
        del self._members[member.rank]
        for rank in sorted(self._members):
            other = self._members[rank]
            if self._network.can_talk(member.place.host, other.place.host):
                after_s = self._chance.uniform(0.001, 0.02)
                self.loop.later(after_s, other.break_, f"rank {member.rank}: Connection closed by peer")

    def _try(self) -> None:
        if len(self._waiting) < self._size:
            return
        whats = {what for what, _, _ in self._waiting.values()}
        if len(whats) > 1:
            self._on_mismatch(" and ".join(sorted(whats)))
        places = [self._members[rank].place for rank in sorted(self._waiting) if rank in self._members]
        if len(places) < self._size or not self._all_talk(places):
            if not self._is_checking:
                self._is_checking = True
                self.loop.later(RECHECK_S, self._check_again)
            return
        self._complete(places)

    def _check_again(self) -> None:
        self._is_checking = False
        self._try()

    def _all_talk(self, places: list[MemberPlace]) -> bool:
        hosts = [place.host for place in places]
        return all(self._network.can_talk(a, b) for i, a in enumerate(hosts) for b in hosts[:i])

    def _complete(self, places: list[MemberPlace]) -> None:
        words = {rank: word for rank, (_, word, _) in sorted(self._waiting.items())}
        waiting, self._waiting = self._waiting, {}
        self._on_complete(next(iter(waiting.values()))[0], places)
        for rank in sorted(waiting):
            after_s = STEP_SPREAD_S * self._chance.random()
            self.loop.later(after_s, _tell, waiting[rank][2], words)


def _tell(future: "asyncio.Future[dict[int, Any]]", words: dict[int, Any]) -> None:
    if not future.done():
        future.set_result(words)
