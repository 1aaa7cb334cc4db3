"""How many calls of one kind may be under way at once, in all and from one host."""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from peerloom.errors import ResourceExhaustedError

TOO_MANY_CALLS = "TOO_MANY_CALLS"


class CallSlots:
    """Bounds the calls of one kind under way: `limit` in all, `limit_of_host` from one caller's host.

    `what` names them in the plural, for people.
    """

    def __init__(self, what: str, limit: int, limit_of_host: int) -> None:
        self._what, self._limit, self._limit_of_host = what, limit, limit_of_host
        self._taken: Counter[str] = Counter()

    @contextmanager
    def taken_by(self, peer: str) -> Iterator[None]:
        """A slot for a caller, as gRPC names it: "ipv4:10.0.0.7:4711". Raises ResourceExhaustedError."""
        host = peer.rpartition(":")[0] or peer
        if self._taken[host] >= self._limit_of_host:
            raise self._refusal(f"from {host}, and one host may have", self._limit_of_host)
        if self._taken.total() >= self._limit:
            raise self._refusal("here, and all callers together may have", self._limit)
        self._taken[host] += 1
        try:
            yield
        finally:
            self._taken[host] -= 1
            self._taken += Counter()  # drops hosts that have none

    def _refusal(self, whose: str, limit: int) -> ResourceExhaustedError:
        return ResourceExhaustedError(
            f"{limit:,} {self._what} are under way {whose} {limit:,}. Wait until one of them ends, then try "
            "again.",
            reason=TOO_MANY_CALLS,
        )
