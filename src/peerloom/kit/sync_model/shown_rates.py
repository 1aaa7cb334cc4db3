"""What each link carries at least, as a step shows that was shorter than predicted. Pure.

A probe of a long and fast way ends before its connection has found its rate, and whatever else uses a link
while it is measured makes it seem slower. Delays don't depend on that: they stay. A step is as fast as the
slowest way allows, so it tells something of those that seemed slowest, and nothing of the others.
"""

from collections.abc import Iterable
from dataclasses import replace

from peerloom.kit.sync_model.access_links import AccessLink, SyncNetwork
from peerloom.kit.sync_model.prediction import predict
from peerloom.kit.sync_model.scheme import SyncScheme
from peerloom.kit.sync_model.sync_setting import SyncSetting

MOST = 64.0  # times the slowest rate that was measured
LEAST_PART = 0.2  # of a step that has to depend on rates, for it to say something of them
_HALVINGS = 8  # of the rate's logarithm: 2 % of it


def shown_rate(scheme: SyncScheme, setting: SyncSetting, step_s: float) -> float:
    """The bits/s that each link has to carry at least for a step of `step_s`.

    0 where that is no shorter than predicted, or where rates hardly matter; 64 times the slowest one at most.
    Where links alone don't explain it the slowest shares in it as all that is waited for does. Raises as
    `predict`.
    """
    slowest = min(_rates(setting.network_of(scheme.topology)))
    predicted_s = predict(scheme, setting).step_s
    least_s = predict(scheme, at_least(setting, MOST * slowest)).step_s
    if step_s >= predicted_s or predicted_s - least_s < LEAST_PART * predicted_s:
        return 0.0
    if step_s < least_s:
        waits_s, predicted_waits_s = step_s - setting.compute_s, predicted_s - setting.compute_s
        return slowest * predicted_waits_s / max(waits_s, predicted_waits_s / MOST)
    low, high = slowest, MOST * slowest
    for _ in range(_HALVINGS):
        middle = (low * high) ** 0.5
        is_short = predict(scheme, at_least(setting, middle)).step_s <= step_s
        low, high = (low, middle) if is_short else (middle, high)
    return high


def at_least(setting: SyncSetting, bits_per_s: float) -> SyncSetting:
    """The same setting, where no link and nothing that a site shares is slower than that."""
    by_topology = {name: _raised(network, bits_per_s) for name, network in setting.by_topology.items()}
    return replace(setting, network=_raised(setting.network, bits_per_s), by_topology=by_topology)


def _raised(network: SyncNetwork, bits_per_s: float) -> SyncNetwork:
    trunks = tuple(replace(trunk, link=_link(trunk.link, bits_per_s)) for trunk in network.trunks)
    links, servers = _links(network.links, bits_per_s), _links(network.servers, bits_per_s)
    return replace(network, links=links, servers=servers, trunks=trunks)


def _links(links: Iterable[AccessLink], bits_per_s: float) -> tuple[AccessLink, ...]:
    return tuple(_link(link, bits_per_s) for link in links)


def _link(link: AccessLink, bits_per_s: float) -> AccessLink:
    return AccessLink(max(link.up_bits_per_s, bits_per_s), max(link.down_bits_per_s, bits_per_s))


def _rates(network: SyncNetwork) -> Iterable[float]:
    links = (*network.links, *network.servers, *(trunk.link for trunk in network.trunks))
    return [rate for link in links for rate in (link.up_bits_per_s, link.down_bits_per_s)]
