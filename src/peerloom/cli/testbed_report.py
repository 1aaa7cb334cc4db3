"""How a testbed is told: what is up, how it is, and what passed its links."""

from typing import TYPE_CHECKING, Any

from peerloom.cli.output import print_fields, say, table_lines
from peerloom.kit.printable import Column
from peerloom.kit.quantity_texts import shown_bytes

if TYPE_CHECKING:
    from peerloom.testbed import Testbed
    from peerloom.testbed.standing import Standing
    from peerloom.testbed.traffic import Traffic

_LINK_COLUMNS = (
    Column("HOST", lambda link: link.host or f"(node {link.node})"),
    Column("SENT", lambda link: shown_bytes(link.sent_bytes), right=True),
    Column("PACKETS", lambda link: f"{link.sent_packets:,}", right=True),
    Column("RECEIVED", lambda link: shown_bytes(link.received_bytes), right=True),
    Column("PACKETS", lambda link: f"{link.received_packets:,}", right=True),
    Column("DROPPED", lambda link: f"{link.dropped_packets:,}", right=True),
)


def print_up(testbed: "Testbed") -> None:
    """What is up, and how to reach it."""
    columns = (
        Column("HOST", lambda host: host.name),
        Column("NODE", lambda host: str(host.node), right=True),
        Column("ADDRESS", lambda host: host.address),
        Column("SLOTS", lambda host: str(host.slots) if host.slots else "-", right=True),
        Column("KIND", lambda host: host.isolation),
    )
    for line in table_lines(testbed.plan.all_hosts, columns):
        say(line, err=True)
    for shortcoming in testbed.shortcomings():
        say(f"note: {shortcoming}", err=True)
    say(f"state    {testbed.folder.path}", err=True)
    say(f"inside   peerloom testbed exec --state {testbed.folder.path} -- peerloom nodes list", err=True)


def print_traffic(traffic: "Traffic") -> None:
    """Bytes of each link and the lag, on standard error: standard output is the command's own."""
    say(err=True)
    shown = [link for link in traffic.links if link.host or link.sent_bytes]
    for line in table_lines(shown, _LINK_COLUMNS):
        say(line, err=True)
    sent = f"{shown_bytes(traffic.total_bytes)} sent by all hosts in {traffic.seconds:.1f} s"
    say(f"{sent} over {traffic.backend} ({traffic.medium}, {traffic.congestion_control})", err=True)
    if traffic.lag_worst_s is None:
        return
    words = "faithful" if traffic.faithful else "NOT FAITHFUL: the emulation itself was the slowest part"
    bound_ms, worst_ms = 1000 * traffic.lag_bound_s, 1000 * traffic.lag_worst_s
    say(f"ns-3 was behind by {worst_ms:.1f} ms at worst (bound {bound_ms:g} ms): {words}", err=True)


def plain_standing(standing: "Standing") -> dict[str, Any]:
    """As JSON and YAML show it."""
    plan = standing.plan
    return {
        "name": plan.name,
        "backend": plan.backend,
        "medium": plan.network.medium,
        "pid": standing.pid,
        "hosts": standing.hosts,
        "stats": standing.stats,
        "made": standing.entries,
    }


def print_standing(standing: "Standing") -> None:
    """As a table."""
    plan, stats = standing.plan, standing.stats
    states = {host.name: host for host in standing.hosts}
    columns = (
        Column("HOST", lambda host: host.name),
        Column("NODE", lambda host: str(host.node), right=True),
        Column("LINK", lambda host: "up" if stats.of(host.node).up else "down"),
        Column("STATE", lambda host: states[host.name].state if host.name in states else "-"),
        Column("BELIEF", lambda host: _belief(states, host.name), right=True),
        Column("SENT", lambda host: shown_bytes(stats.of(host.node).sent_bytes), right=True),
        Column("RECEIVED", lambda host: shown_bytes(stats.of(host.node).received_bytes), right=True),
        Column("DROPPED", lambda host: f"{stats.of(host.node).dropped_packets:,}", right=True),
    )
    for line in table_lines(plan.all_hosts, columns):
        say(line)
    lag = (
        ""
        if stats.lag_s is None
        else f"{1000 * stats.lag_s:.1f} ms, {1000 * (stats.lag_worst_s or 0):.1f} at worst"
    )
    say()
    print_fields(
        [
            ("testbed", plan.name),
            ("network", f"{plan.network.nodes} nodes, {plan.network.medium} over {plan.backend}"),
            ("lag", lag),
            ("pid", str(standing.pid)),
        ]
    )


def _belief(states: dict[str, Any], name: str) -> str:
    belief = states[name].belief if name in states else None
    return "-" if belief is None else f"{belief:.4f}"
