"""What stands behind a topology's name: the servers of ps, and the sites of a hierarchy. Pure functions."""

from dataclasses import replace

from peerloom.errors import InvalidArgumentError
from peerloom.kit.sync_method import DIRECT, DOUBLING, HIERARCHY, RING, SERVERS, SyncMethod
from peerloom.kit.sync_sites import Sites, sites_of
from peerloom.kit.whole_numbers import whole_number

SERVERS_COUNTED, SERVERS_NAMED, SITES_NAMED = f"{SERVERS}:K", f"{SERVERS}:NODES", f"{HIERARCHY}:SITES"
TOPOLOGY_CHOICES = {
    RING: "the library's all-reduce",
    DIRECT: "each rank gets everybody's values for its part, adds them up, and gives the sum to all",
    SERVERS: "each bucket has one rank that gets everybody's, adds them up, and gives the sum to all",
    SERVERS_COUNTED: "the same, by the first K ranks alone, or by all where there are fewer",
    SERVERS_NAMED: "the same, by the ranks on named nodes alone, as in ps:node-1+node-3",
    DOUBLING: "each rank swaps its sum with one other, then with one twice as far, until all have all",
    HIERARCHY: "values are added up inside each site first; a site is a node with all of its workers",
    SITES_NAMED: "likewise, by sites of named nodes, as in node-1+node-2/node-3+node-4",
}
MOST_SERVERS = 1 << 16
MOST_NAMED_NODES = 48  # more nodes' ids have no room in a method


def placed(field: str, text: str, method: SyncMethod, topology: str, told: str) -> SyncMethod:
    """The method by this topology, with the servers or the sites that are `told` behind its colon.

    A number behind ps is how many servers there are, and no node's name. Raises InvalidArgumentError.
    """
    where = replace(method, topology=topology)
    if not told:
        return where
    if topology == HIERARCHY:
        example = "as in node-1+node-2/node-3+node-4"
        return replace(where, sites=_named(field, text, f"{SITES_NAMED} with", sites_of(told), example))
    if told.isdecimal():
        return replace(where, servers=whole_number(field, text, SERVERS_COUNTED, told, 1, MOST_SERVERS))
    form = f"{SERVERS_COUNTED} with a whole number, or {SERVERS_NAMED} with"
    sites = sites_of(told) if "/" not in told else None
    [nodes] = _named(field, text, form, sites, "as in ps:node-1+node-3")
    return replace(where, server_nodes=nodes)


def _named(field: str, text: str, form: str, sites: Sites | None, example: str) -> Sites:
    if sites is None or sum(map(len, sites)) > MOST_NAMED_NODES:
        limit = f"{form} each node's name once, {example}, and {MOST_NAMED_NODES} at most"
        raise InvalidArgumentError.of_field(field, text, limit)
    return sites
