"""How much more links carry than was measured of them, as a step shows that was shorter than predicted. Pure.

A probe of a long and fast way ends before its connection has found its rate, and whatever else uses a link
while it is measured makes it seem slower. Delays don't depend on that: they stay.
"""

from collections.abc import Iterable
from dataclasses import replace

from peerloom.kit.sync_model.access_links import AccessLink, SyncNetwork
from peerloom.kit.sync_model.prediction import predict
from peerloom.kit.sync_model.scheme import SyncScheme
from peerloom.kit.sync_model.sync_setting import SyncSetting

MOST = 64.0
LEAST_PART = 0.2  # of a step that has to depend on rates, for it to say something of them
_HALVINGS = 8  # of the factor's logarithm: 2 % of it


def shown_factor(scheme: SyncScheme, setting: SyncSetting, step_s: float) -> float:
    """How many times as fast links have to be for a step of `step_s`.

    1 where that is no shorter than predicted, or where rates hardly matter; 64 at most. Where links alone
    don't explain it they share in it as all that is waited for does. Raises as `predict`.
    """
    predicted_s = predict(scheme, setting).step_s
    least_s = predict(scheme, faster(setting, MOST)).step_s
    if step_s >= predicted_s or predicted_s - least_s < LEAST_PART * predicted_s:
        return 1.0
    if step_s < least_s:
        waits_s, predicted_waits_s = step_s - setting.compute_s, predicted_s - setting.compute_s
        return predicted_waits_s / max(waits_s, predicted_waits_s / MOST)
    low, high = 1.0, MOST
    for _ in range(_HALVINGS):
        middle = (low * high) ** 0.5
        is_short = predict(scheme, faster(setting, middle)).step_s <= step_s
        low, high = (low, middle) if is_short else (middle, high)
    return high


def faster(setting: SyncSetting, factor: float) -> SyncSetting:
    """The same setting with links that are so many times as fast."""
    by_topology = {name: _with_links(network, factor) for name, network in setting.by_topology.items()}
    return replace(setting, network=_with_links(setting.network, factor), by_topology=by_topology)


def _with_links(network: SyncNetwork, factor: float) -> SyncNetwork:
    trunks = tuple(replace(trunk, link=_times(trunk.link, factor)) for trunk in network.trunks)
    links, servers = _all_times(network.links, factor), _all_times(network.servers, factor)
    return replace(network, links=links, servers=servers, trunks=trunks)


def _all_times(links: Iterable[AccessLink], factor: float) -> tuple[AccessLink, ...]:
    return tuple(_times(link, factor) for link in links)


def _times(link: AccessLink, factor: float) -> AccessLink:
    return AccessLink(link.up_bits_per_s * factor, link.down_bits_per_s * factor)
