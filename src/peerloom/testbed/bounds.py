"""What this kind of emulation was measured to carry, and which plans ask for more."""

import itertools
import json
from functools import cache
from importlib.resources import files

from peerloom.testbed.plan import Plan
from peerloom.testbed.quantities import shown_rate


@cache
def measured_bounds() -> tuple[tuple[int, float], ...]:
    """(MTU in bytes, bits a second of all hosts together), by growing MTU; from bounds.json."""
    text = files("peerloom.testbed").joinpath("bounds.json").read_text(encoding="utf-8")
    rows = json.loads(text)["all_hosts_bits_per_s"]
    return tuple(sorted((int(row["mtu_bytes"]), float(row["bits_per_s"])) for row in rows))


def bound_at(mtu_bytes: int) -> float:
    """Bits a second that ns-3 carried for all hosts together: measured, and between measurements a line."""
    rows = measured_bounds()
    if mtu_bytes <= rows[0][0]:
        return rows[0][1] * mtu_bytes / rows[0][0]
    for (low_mtu, low), (high_mtu, high) in itertools.pairwise(rows):
        if mtu_bytes <= high_mtu:
            return low + (high - low) * (mtu_bytes - low_mtu) / (high_mtu - low_mtu)
    return rows[-1][1]


def warnings_of(plan: Plan) -> list[str]:
    """Sentences about rates beyond what was measured; none for netem, which the kernel carries."""
    if plan.backend != "ns3":
        return []
    network, bound = plan.network, bound_at(plan.network.mtu_bytes)
    asked = {"network.rate": network.default_link.rate_bits_per_s}
    if network.medium == "wan":
        asked = {f"the link of {host.name}": host.link.rate_bits_per_s for host in plan.all_hosts}
    asked["network.background"] = network.background_bits_per_s
    advice = (
        "watch the lag, lower the rate, or raise the MTU" if network.mtu_bytes < 65000 else "watch the lag"
    )
    return [
        f"{what} is {shown_rate(rate)}, but ns-3 was measured to carry {shown_rate(bound)} of all hosts "
        f"together at MTU {network.mtu_bytes} (20 nodes, 5 hosts): beyond that it falls behind; {advice}."
        for what, rate in asked.items()
        if rate > bound
    ]
