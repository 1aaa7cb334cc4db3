"""What crosses the ways that the ranks of a site share to all others, and how long it takes there."""

from collections.abc import Iterable

from peerloom.kit.sync_model.access_links import SyncNetwork

Flow = tuple[int, int, int]  # from a rank, to a rank, bytes


def trunk_links(network: SyncNetwork, sends: str, receives: str) -> tuple[str, ...]:
    """The names of the trunks' links: two each, or one where both directions take turns."""
    directions = (sends, receives) if network.is_full_duplex else (sends,)
    return tuple(f"site {number} {one}" for number in range(len(network.trunks)) for one in directions)


def trunks_busy(network: SyncNetwork, flows: Iterable[Flow], first: int) -> list[tuple[int, float]]:
    """How long (s) each trunk's link is busy with these flows; the first trunk's has the number `first`."""
    busy = []
    for number, (out_s, in_s) in enumerate(_used_s(network, flows)):
        if network.is_full_duplex:
            busy += [(first + 2 * number, out_s), (first + 2 * number + 1, in_s)]
        else:
            busy.append((first + number, out_s + in_s))
    return [one for one in busy if one[1]]


def slowest_trunk_s(network: SyncNetwork, flows: Iterable[Flow]) -> float:
    """How long the busiest of them takes for these flows; 0 where none crosses one."""
    used = _used_s(network, flows)
    both = [max(out_s, in_s) if network.is_full_duplex else out_s + in_s for out_s, in_s in used]
    return max(both, default=0.0)


def _used_s(network: SyncNetwork, flows: Iterable[Flow]) -> list[tuple[float, float]]:
    """By trunk: seconds outwards, and inwards."""
    if not network.trunks:
        return []
    site_of = {rank: number for number, trunk in enumerate(network.trunks) for rank in trunk.ranks}
    out_bytes, in_bytes = [0] * len(network.trunks), [0] * len(network.trunks)
    for sender, taker, length in flows:
        here, there = site_of.get(sender), site_of.get(taker)
        if here == there:
            continue
        if here is not None:
            out_bytes[here] += length
        if there is not None:
            in_bytes[there] += length
    links = [trunk.link for trunk in network.trunks]
    return [
        (8 * sent / link.up_bits_per_s, 8 * received / link.down_bits_per_s)
        for link, sent, received in zip(links, out_bytes, in_bytes, strict=True)
    ]
