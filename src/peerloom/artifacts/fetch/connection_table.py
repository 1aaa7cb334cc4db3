"""Which connections a server has: bounded in all and for each host, where the longest idle makes room."""

from collections import Counter
from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)


@dataclass
class ConnectionTable(Generic[K]):
    """At most `limit` connections, and `limit_of_host` from one host, each known by a key."""

    limit: int
    limit_of_host: int
    _hosts: dict[K, str] = field(default_factory=dict)
    _idle: dict[K, None] = field(default_factory=dict)  # longest idle first
    _count: Counter[str] = field(default_factory=Counter)

    def enter(self, key: K, host: str) -> tuple[bool, K | None]:
        """Whether a new, idle connection is taken, and the one that has to be closed for it.

        A host at its limit gives up one of its own: who opens many can't close those of others.
        """
        displaced: K | None = None
        if self._count[host] >= self.limit_of_host:
            displaced = next((one for one in self._idle if self._hosts[one] == host), None)
        elif len(self._hosts) >= self.limit:
            displaced = next(iter(self._idle), None)
        else:
            self._add(key, host)
            return True, None
        if displaced is None:
            return False, None
        self.leave(displaced)
        self._add(key, host)
        return True, displaced

    def wait(self, key: K) -> None:
        """It is idle from now on, until it has asked for something."""
        if key in self._hosts:
            self._idle.setdefault(key)

    def work(self, key: K) -> None:
        """It asked, and is answered."""
        self._idle.pop(key, None)

    def leave(self, key: K) -> None:
        """It is closed; once more does nothing."""
        self._idle.pop(key, None)
        host = self._hosts.pop(key, None)
        if host is not None:
            self._count[host] -= 1
            if not self._count[host]:
                del self._count[host]

    def _add(self, key: K, host: str) -> None:
        self._hosts[key] = host
        self._idle[key] = None
        self._count[host] += 1
