"""What the dashboard shows of a testbed: its links and their counters, and whether the emulation keeps up."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from peerloom.testbed.quantities import shown_rate

if TYPE_CHECKING:
    from peerloom.testbed import Plan
    from peerloom.testbed.backends import Stats


def look_beside(state: Path, plan: "Plan") -> Callable[[], dict[str, Any]]:
    """What looks at the testbed on a state folder; it raises a PeerloomError once that is down."""
    from peerloom.testbed import standing  # here, as only Linux has what it stands on

    return lambda: row_of(plan, standing.count(state, plan))


def row_of(plan: "Plan", stats: "Stats") -> dict[str, Any]:
    """The network with its hosts; times in milliseconds, delays and rates as the file gives them."""
    return {
        "name": plan.name,
        "backend": plan.backend,
        "medium": plan.network.medium,
        "wall_s": stats.wall_s,
        "cpu_s": stats.cpu_s,
        "lag_ms": _milliseconds(stats.lag_s),
        "lag_worst_ms": _milliseconds(stats.lag_worst_s),
        "lag_bound_ms": _milliseconds(plan.faithful_lag_s),
        "hosts": [
            {
                "name": host.name,
                "node": host.node,
                "up": stats.of(host.node).up,
                "delay_ms": _milliseconds(host.link.delay_s),
                "rate": shown_rate(host.link.rate_bits_per_s),
                "sent_bytes": stats.of(host.node).sent_bytes,
                "received_bytes": stats.of(host.node).received_bytes,
                "dropped_packets": stats.of(host.node).dropped_packets,
            }
            for host in plan.all_hosts
        ],
    }


def _milliseconds(seconds: float | None) -> float | None:
    return None if seconds is None else 1000 * seconds
