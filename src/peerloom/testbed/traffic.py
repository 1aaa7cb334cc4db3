"""What passed each link between two times, and whether the emulation kept up."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from peerloom.testbed.backends import Stats
from peerloom.testbed.plan import Plan


@dataclass(frozen=True)
class LinkTraffic:
    """What one host sent into the network and received from it; `host` is empty for a node without one."""

    host: str
    node: int
    sent_bytes: int
    sent_packets: int
    received_bytes: int
    received_packets: int
    dropped_packets: int


@dataclass(frozen=True)
class Traffic:
    """What passed in `seconds`. Where nothing can lag, the lags are None and `faithful` says nothing.

    `faithful` is False when the simulator was further behind the wall clock than `lag_bound_s` at its
    worst: what was measured then is the emulation's own slowness.
    """

    backend: str
    medium: str
    congestion_control: str
    seconds: float
    lag_worst_s: float | None
    lag_bound_s: float
    faithful: bool | None
    links: tuple[LinkTraffic, ...]

    @property
    def total_bytes(self) -> int:
        """What all hosts sent."""
        return sum(link.sent_bytes for link in self.links if link.host)

    def to_plain(self) -> dict[str, Any]:
        """As JSON knows it."""
        return asdict(self)


def traffic_between(plan: Plan, samples: Sequence[Stats]) -> Traffic:
    """From the first sample to the last; at least one, in order of time."""
    first, last = samples[0], samples[-1]
    before = {count.node: count for count in first.nodes}
    names = {host.node: host.name for host in plan.all_hosts}
    links = tuple(
        LinkTraffic(
            host=names.get(after.node, ""),
            node=after.node,
            sent_bytes=after.sent_bytes - before[after.node].sent_bytes,
            sent_packets=after.sent_packets - before[after.node].sent_packets,
            received_bytes=after.received_bytes - before[after.node].received_bytes,
            received_packets=after.received_packets - before[after.node].received_packets,
            dropped_packets=after.dropped_packets - before[after.node].dropped_packets,
        )
        for after in last.nodes
    )
    worst_s = worst_lag_s(samples)
    return Traffic(
        backend=plan.backend,
        medium=plan.network.medium,
        congestion_control=plan.network.congestion_control,
        seconds=last.wall_s - first.wall_s,
        lag_worst_s=worst_s,
        lag_bound_s=plan.faithful_lag_s,
        faithful=None if worst_s is None else worst_s <= plan.faithful_lag_s,
        links=links,
    )


def worst_lag_s(samples: Sequence[Stats]) -> float | None:
    """The worst lag among and between samples.

    The simulator tells the worst since its start: where that grew, it happened in between; else only the
    samples' own lags are known to belong here.
    """
    own = [sample.lag_s for sample in samples if sample.lag_s is not None]
    first, last = samples[0].lag_worst_s, samples[-1].lag_worst_s
    if first is None or last is None or not own:
        return None
    return last if last > first else max(own)
