"""Draws a testbed: who is where and in which state, and what passed each link over time."""

import math
from collections.abc import Sequence
from typing import Any

from peerloom.testbed.backends import Stats
from peerloom.testbed.plan import CONTROL, Plan
from peerloom.testbed.quantities import shown_rate, time_text
from peerloom.testbed.services import HostState

# Each state also by its shape, for those who don't see colours.
_STATES = {
    "alive": ("#5fa8a0", "o"),
    "suspect": ("#d9a441", "^"),
    "dead": ("#c25b12", "X"),
    "left": ("#b9b9b9", "s"),
    "unknown": ("#eeeeee", "o"),
}


def draw_topology(axis: Any, plan: Plan, hosts: Sequence[HostState], stats: Stats) -> None:
    """All nodes on a circle around their medium: hosts with state, slots and belief, others as dots."""
    states = {host.name: host for host in hosts}
    online = {count.node: count.up for count in stats.nodes}
    at = {node: _place(node, plan.network.nodes) for node in range(plan.network.nodes)}
    for node, (x, y) in at.items():
        style = "-" if online.get(node, plan.backend == "ns3") else (0, (1, 3))
        axis.plot([0, x], [0, y], color="#999999", linewidth=1.0, linestyle=style, zorder=1)
    bare = [place for node, place in at.items() if node not in {host.node for host in plan.all_hosts}]
    if plan.backend == "ns3" and bare:
        axis.scatter(*zip(*bare, strict=True), s=30, color="#cccccc", label="node without host", zorder=2)
    seen: set[str] = set()
    for host in plan.all_hosts:
        x, y = at[host.node]
        known = states.get(host.name)
        state = known.state if known else CONTROL
        colour, marker = _STATES.get(state, ("#0b3c5d", "D"))
        label = None if state in seen else state
        seen.add(state)
        axis.scatter([x], [y], s=220, color=colour, marker=marker, edgecolors="black", label=label, zorder=3)
        axis.annotate(
            _caption(host.name, host.slots, known), (1.3 * x, 1.24 * y), ha="center", va="center", size=7
        )
    _draw_medium(axis, plan)


def _place(node: int, nodes: int) -> tuple[float, float]:
    angle = math.pi / 2 - 2 * math.pi * node / nodes
    return math.cos(angle), math.sin(angle)


def _caption(name: str, slots: int, known: HostState | None) -> str:
    if known is None:
        return name
    belief = "no belief" if known.belief is None else f"belief {known.belief:.2f}"
    return f"{name}\n{slots} {'slot' if slots == 1 else 'slots'}\n{belief}"


def _draw_medium(axis: Any, plan: Plan) -> None:
    network = plan.network
    link = f"{shown_rate(network.default_link.rate_bits_per_s)}, {time_text(network.default_link.delay_s)}"
    axis.annotate(
        f"{plan.backend} {network.medium}\n{link}\nMTU {network.mtu_bytes}",
        (0, 0),
        ha="center",
        va="center",
        size=8,
        bbox={"boxstyle": "round", "facecolor": "white", "edgecolor": "black"},
        zorder=4,
    )
    axis.set_xlim(-1.6, 1.6)
    axis.set_ylim(-1.5, 1.5)
    axis.set_axis_off()
    axis.set_title(f"testbed {plan.name}", fontsize=10, loc="left")
    axis.legend(loc="lower left", fontsize=7, frameon=False, markerscale=0.5)


def bytes_over_time(plan: Plan, samples: Sequence[Stats]) -> dict[str, list[float]]:
    """For each host, what it sent since the first sample, in bytes, at each sample; cumulative."""
    first = {count.node: count.sent_bytes for count in samples[0].nodes}
    return {
        host.name: [float(sample.of(host.node).sent_bytes - first[host.node]) for sample in samples]
        for host in plan.all_hosts
    }


def draw_bytes(axis: Any, plan: Plan, samples: Sequence[Stats]) -> None:
    """What each host had sent by then, in megabytes over seconds."""
    times_s = [sample.wall_s - samples[0].wall_s for sample in samples]
    styles = ["-", "--", "-.", ":"]
    for number, (name, sent) in enumerate(bytes_over_time(plan, samples).items()):
        megabytes = [count / 1e6 for count in sent]
        axis.plot(times_s, megabytes, label=name, linestyle=styles[number % 4], linewidth=1.4)
    axis.set_title(f"testbed {plan.name}: sent into the network", fontsize=10, loc="left")
    axis.set_xlabel("time (s)")
    axis.set_ylabel("bytes (MB)")
    axis.legend(fontsize=7, frameon=False)
