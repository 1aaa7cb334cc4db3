"""Which services answer: what is shown of one that doesn't is as old as its last answer."""

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

SERVICES = ("registry", "selector", "trainer")


@dataclass(frozen=True)
class Availability:
    """Of one service: when it last answered, and since when and why it is away (None: it is there)."""

    answered_time: datetime | None = None
    away_since: datetime | None = None
    trouble: str = ""

    def answered(self, now_s: float) -> "Availability":
        """It answered."""
        return Availability(datetime.fromtimestamp(now_s, UTC))

    def failed(self, now_s: float, trouble: str) -> "Availability":
        """It didn't; it is away since the first time."""
        since = self.away_since or datetime.fromtimestamp(now_s, UTC)
        return Availability(self.answered_time, since, trouble)

    @property
    def is_news(self) -> bool:
        """Nothing was asked of it before."""
        return self.answered_time is None and self.away_since is None


def services_page(availability: dict[str, Availability], address: str) -> dict[str, Any]:
    """What the banner shows; when a service answered is told only while it is away.

    Of one that has not `told` anything yet nothing is known: what it would tell is no empty list.
    """
    services = {
        name: {
            "told": one.answered_time is not None,
            "away_since": one.away_since,
            "answered": one.answered_time if one.away_since else None,
            "trouble": one.trouble,
        }
        for name, one in availability.items()
    }
    return {"address": address, "services": services}
