"""The topology of each of a step's buckets, by its scheme."""

from collections.abc import Sequence

from peerloom.kit.sync_method import DIRECT, DOUBLING, HIERARCHY, RING
from peerloom.kit.sync_model.access_links import SyncNetwork
from peerloom.kit.sync_model.doubling_rounds import DoublingTopology
from peerloom.kit.sync_model.message_rounds import RingTopology, SumTopology
from peerloom.kit.sync_model.owner_rounds import OwnersTopology
from peerloom.kit.sync_model.scheme import SyncScheme
from peerloom.kit.sync_model.site_rounds import SiteTopology
from peerloom.kit.sync_servers import ServerLoads, server_ranks
from peerloom.kit.sync_sites import leaders_of

MOST_ALONE = 32  # each rank that is simulated by itself costs the simulation as much time again


def topologies_of(
    scheme: SyncScheme,
    network: SyncNetwork,
    sizes_bytes: Sequence[int],
    given: SumTopology | None = None,
) -> tuple[SumTopology, ...]:
    """That of each message, which has so many bytes before it is encoded; all use the same links.

    What is `given` is used in place of the scheme's. With servers that are ranks a small message has one
    owner, as `ServerLoads` says; where that makes over 32 their links are as busy as if each message were
    spread over all.
    """
    if given is not None:
        return _alike(given, sizes_bytes)
    if scheme.topology == RING:
        return _alike(RingTopology(network, scheme.message_bytes), sizes_bytes)
    if scheme.topology == DOUBLING:
        return _alike(DoublingTopology(network, scheme.message_bytes), sizes_bytes)
    if scheme.topology == HIERARCHY:
        leaders = leaders_of(scheme.sites, network.node_names)
        return _alike(SiteTopology(network, scheme.message_bytes, leaders), sizes_bytes)
    if scheme.topology == DIRECT:
        return _alike(OwnersTopology(network, scheme.message_bytes, range(network.ranks)), sizes_bytes)
    if network.servers:
        return _alike(OwnersTopology(network, scheme.message_bytes, ()), sizes_bytes)
    return _of_servers(scheme, network, sizes_bytes)


def _alike(topology: SumTopology, sizes_bytes: Sequence[int]) -> tuple[SumTopology, ...]:
    return (topology,) * len(sizes_bytes)


def _of_servers(
    scheme: SyncScheme, network: SyncNetwork, sizes_bytes: Sequence[int]
) -> tuple[SumTopology, ...]:
    servers = server_ranks(scheme.owners, scheme.server_nodes, network.node_names)
    loads = ServerLoads(servers)
    owners = [loads.owners_of_next(size) for size in sizes_bytes]
    alone = frozenset(one[0] for one in owners if one != servers)
    if len(alone) > MOST_ALONE:
        return _alike(OwnersTopology(network, scheme.message_bytes, servers), sizes_bytes)
    whole = OwnersTopology(network, scheme.message_bytes, servers, alone)
    by_owners = {one: whole.owned_by(one) for one in set(owners)}
    return tuple(by_owners[one] for one in owners)
