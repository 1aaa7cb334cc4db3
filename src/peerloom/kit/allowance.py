"""How often something may happen: some at once, then so many a second (a token bucket). Pure.

    left(now) = min(most, left(then) + per_s * (now - then))

`Allowances` keeps one bucket for each of a bounded number of keys.
"""

from collections import OrderedDict
from collections.abc import Hashable
from dataclasses import dataclass
from typing import Generic, NamedTuple, TypeVar

K = TypeVar("K", bound=Hashable)


class Bucket(NamedTuple):
    """How much was left at a time (monotonic seconds)."""

    left: float
    at_s: float


@dataclass(frozen=True, slots=True)
class Rate:
    """At most `most` at once, and `per_s` a second in the long run."""

    most: float
    per_s: float

    def refilled(self, bucket: Bucket | None, now_s: float) -> Bucket:
        """What there is at `now_s`; None: nothing was ever taken."""
        if bucket is None:
            return Bucket(self.most, now_s)
        elapsed_s = max(0.0, now_s - bucket.at_s)
        return Bucket(min(self.most, bucket.left + self.per_s * elapsed_s), now_s)

    def take(self, bucket: Bucket | None, now_s: float) -> tuple[Bucket, bool]:
        """Takes one if there is one; returns what is left, and whether there was."""
        found = self.refilled(bucket, now_s)
        return (Bucket(found.left - 1, now_s), True) if found.left >= 1 else (found, False)


class Allowances(Generic[K]):
    """A bucket for each key. At most `limit` keys: beyond it the one used longest ago begins anew."""

    def __init__(self, rate: Rate, limit: int) -> None:
        self._rate = rate
        self._limit = limit
        self._buckets: OrderedDict[K, Bucket] = OrderedDict()

    def take(self, key: K, now_s: float) -> bool:
        """Whether the key may once more."""
        bucket, may = self._rate.take(self._buckets.get(key), now_s)
        self._buckets[key] = bucket
        self._buckets.move_to_end(key)
        while len(self._buckets) > self._limit:
            self._buckets.popitem(last=False)
        return may
