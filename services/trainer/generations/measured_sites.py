"""Sites that measurements show: ranks with fast ways between them, and one narrower way to all others. Pure.

Two ranks on one machine, or two machines in one room, reach each other several times as fast as the rest.
What they send there crosses one line: each of them alone measures more than it has when all send at once.
"""

from collections.abc import Collection, Mapping, Sequence
from itertools import pairwise

from peerloom.kit.sync_model.access_links import AccessLink, Trunk
from peerloom.kit.sync_sites import Sites
from peerloom.kit.tournament import measured_partners

# So many times as fast is another kind of way; within it nothing is gained by a leader.
GAP = 3.0
# Faster ways are as fast as processors copy just then: they tell of no line.
FASTEST_LINE_BITS_PER_S = 2e9
Rates = Mapping[tuple[int, int], float]  # bits/s from a rank to another, of the ways that were measured


def trunks_of(rates: Rates, ranks: int) -> tuple[Trunk, ...]:
    """What each site of several ranks shares to the rest; none where all ways are of one kind.

    Of all thresholds between two kinds of ways the one with the widest gap counts, if within each site every
    measured way is above it.
    """
    both = {(i, j): min(rates[i, j], rates[j, i]) for i, j in rates if i < j and (j, i) in rates}
    kinds = sorted(set(both.values()))
    lines = [(below, above) for below, above in pairwise(kinds) if below <= FASTEST_LINE_BITS_PER_S]
    gaps = sorted(((above / below, above) for below, above in lines), reverse=True)
    for gap, least in gaps:
        if gap < GAP:
            break
        sites = _joined({pair for pair, rate in both.items() if rate >= least}, ranks)
        far = [pair for pair, rate in both.items() if rate < least]
        if len(sites) > 1 and not any(_is_inside(pair, sites) for pair in far):
            shared = [site for site in sites if len(site) > 1]
            return tuple(Trunk(tuple(site), _shared_link(rates, site, ranks)) for site in shared)
    return ()


def named_sites(trunks: Sequence[Trunk], nodes: Sequence[str]) -> Sites | None:
    """The sites by their nodes' names, those of several nodes; empty: each is one node with all its ranks.

    None where there are none, or a node's ranks are at several.
    """
    if not trunks:
        return None
    site_of = {rank: number for number, trunk in enumerate(trunks) for rank in trunk.ranks}
    by_node: dict[str, set[int]] = {}
    for rank, node in enumerate(nodes):
        by_node.setdefault(node, set()).add(site_of.get(rank, -1 - rank))
    if any(len(places) > 1 for places in by_node.values()):
        return None
    sites = (tuple(dict.fromkeys(nodes[rank] for rank in trunk.ranks)) for trunk in trunks)
    return tuple(site for site in sites if len(site) > 1)


def _joined(near: Collection[tuple[int, int]], ranks: int) -> list[list[int]]:
    """The ranks in groups of those that near ways connect, each in order."""
    group_of = list(range(ranks))
    for i, j in sorted(near):
        old, new = group_of[j], group_of[i]
        group_of = [new if group == old else group for group in group_of]
    return [[rank for rank in range(ranks) if group_of[rank] == group] for group in sorted(set(group_of))]


def _is_inside(pair: tuple[int, int], sites: Sequence[Sequence[int]]) -> bool:
    return any(pair[0] in site and pair[1] in site for site in sites)


def _shared_link(rates: Rates, site: Sequence[int], ranks: int) -> AccessLink:
    """What crossed it at once in the best round of the measuring, each way."""
    rounds = len(measured_partners(0, ranks))
    out, back = [0.0] * rounds, [0.0] * rounds
    for rank in site:
        for number, partner in enumerate(measured_partners(rank, ranks)):
            if partner is not None and partner not in site:
                out[number] += rates.get((rank, partner), 0.0)
                back[number] += rates.get((partner, rank), 0.0)
    return AccessLink(max(out), max(back))
