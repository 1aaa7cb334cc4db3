"""Which trainers this node works for: those that the registry lists."""

from collections.abc import Awaitable, Callable, Sequence

from peerloom.errors import PeerloomError, UnavailableError
from peerloom.kit.checks import check_address
from peerloom.kit.clock import Clock

# A trainer stays known for so long after it was listed: longer outlives a registry that is away, shorter
# forgets sooner one that has left the list.
REMEMBERED_S = 60.0


class ListedTrainers:
    """Asks the registry by `list_trainers` (host:port of each), and remembers its answers for a minute."""

    def __init__(self, list_trainers: Callable[[], Awaitable[Sequence[str]]], clock: Clock) -> None:
        self._list_trainers, self._clock = list_trainers, clock
        self._listed_s: dict[str, float] = {}

    async def why_not(self, address: str) -> str:
        """Why this node doesn't work for the trainer at host:port; empty for one that the registry lists."""
        if self._is_remembered(address):
            return ""
        try:
            listed = await self._list_trainers()
        except PeerloomError as error:
            return (
                f"The node works only for trainers that the registry lists; it can't ask now: {error.message}"
            )
        now_s = self._clock.monotonic_s()
        self._listed_s = {known: s for known, s in self._listed_s.items() if now_s - s < REMEMBERED_S}
        self._listed_s |= dict.fromkeys(listed, now_s)
        if address in listed:
            return ""
        others = ", ".join(listed) or "none"
        return (
            f"The registry lists no trainer at {address}, and the node works for no other ({others} listed)."
        )

    async def check_listed(self, address: str) -> None:
        """Raises InvalidArgumentError for no host:port, UnavailableError for a trainer that isn't listed.

        One that has just taken over is, as soon as the registry answers: it asks again.
        """
        check_address("trainer_address", address)
        if doubt := await self.why_not(address):
            raise UnavailableError(doubt, reason="TRAINER_NOT_LISTED", metadata={"address": address})

    def _is_remembered(self, address: str) -> bool:
        listed_s = self._listed_s.get(address)
        return listed_s is not None and self._clock.monotonic_s() - listed_s < REMEMBERED_S
