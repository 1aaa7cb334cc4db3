"""The node that is best as the only server of all: near to everybody, behind a link as wide as all need."""

from peerloom.kit.sync_model.access_links import SyncNetwork

LEAST_RANKS = 3  # of two, each is as far from the other
BITS = 8


def central_node(network: SyncNetwork, size_bytes: int) -> str | None:
    """The node whose ranks get everybody's `size_bytes` and give the sum back soonest; of equals the first.

    What a site's ranks share isn't looked at. None with fewer than three ranks, or all on one node.
    """
    names = network.node_names
    if network.ranks < LEAST_RANKS or len(set(names)) == 1:
        return None
    return min(dict.fromkeys(names), key=lambda name: _round_trip_s(network, names.index(name), size_bytes))


def _round_trip_s(network: SyncNetwork, server: int, size_bytes: int) -> float:
    """Until all values have come to the `server`, and then their sum to all ranks."""
    links, delays_s = network.links, network.delay_s
    others = [rank for rank in range(network.ranks) if rank != server]
    narrowest_up = min(links[rank].up_bits_per_s for rank in others)
    narrowest_down = min(links[rank].down_bits_per_s for rank in others)
    there_s = max(delays_s[rank][server] for rank in others)
    back_s = max(delays_s[server][rank] for rank in others)
    up_s = 1 / min(narrowest_up, links[server].down_bits_per_s / len(others))
    down_s = 1 / min(narrowest_down, links[server].up_bits_per_s / len(others))
    return there_s + back_s + BITS * size_bytes * (up_s + down_s)
