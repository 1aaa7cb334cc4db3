"""Whether the registry answers: what health tells, how long to wait for an answer and before the next try."""

import asyncio
from collections.abc import Awaitable, Callable

from peerloom.errors import UnavailableError
from peerloom.kit.backoff import Backoff
from peerloom.kit.logs import get_logger

_log = get_logger()
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.2, 5.0
_MOST_DOUBLINGS = 3


class RegistryContact:
    """How the talk with the registry at `address` goes; `probe` is for the health of the agent."""

    def __init__(self, address: str, sleep: Callable[[float], Awaitable[object]] = asyncio.sleep) -> None:
        self._address, self._sleep = address, sleep
        self._trouble = f"The registry at {address} has not answered yet."
        self._backoff = Backoff(_FIRST_PAUSE_S, _LONGEST_PAUSE_S)

    async def probe(self) -> None:
        """Raises UnavailableError while this node isn't in touch with the registry."""
        if self._trouble:
            raise UnavailableError(self._trouble)

    def note_answer(self) -> None:
        """The registry has answered."""
        self._trouble = ""
        self._backoff.succeeded()

    def patience_s(self, first_s: float) -> float:
        """How long to wait for an answer: `first_s`, doubled with each failure in a row, at most 8 times it.

        When thousands come at once each waits for those before it. Would all give up after the same time and
        ask anew, the registry would answer those that have gone, and never come to an end.
        """
        return float(first_s * 2 ** min(self._backoff.failures, _MOST_DOUBLINGS))

    async def wait_after(self, trouble: str) -> None:
        """Waits before the next try, longer with each failure in a row; `trouble` says what has happened."""
        pause_s = self._backoff.next_pause_s()
        if self._backoff.failures == 1:
            _log.warning("registry_lost", registry=self._address, reason=trouble)
        self._trouble = trouble
        await self._sleep(pause_s)
