"""Which ranks are at one site, and which of them leads it: pure functions of nodes and what a job names.

A site is written as its nodes with "+" between them, and sites with "/": "node-1+node-2/node-3+node-4".
"""

import re
from collections.abc import Mapping, Sequence

Sites = tuple[tuple[str, ...], ...]  # each the names of its nodes
_NODE = re.compile("[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")


def sites_of(text: str) -> Sites | None:
    """The sites that a text names; None where it names none, or a node twice."""
    sites = tuple(tuple(site.split("+")) for site in text.split("/"))
    nodes = [node for site in sites for node in site]
    is_clean = all(_NODE.fullmatch(node) for node in nodes) and len(set(nodes)) == len(nodes)
    return sites if is_clean else None


def shown_sites(sites: Sites) -> str:
    """The text that names them."""
    return "/".join("+".join(site) for site in sites)


def renamed(sites: Sites, names: Mapping[str, str]) -> Sites:
    """The same sites, with another name for each node that has one; one that is there twice counts once."""
    found: dict[str, int] = {}
    for number, site in enumerate(sites):
        for node in site:
            found.setdefault(names.get(node, node), number)
    by_site = (tuple(one for one in found if found[one] == number) for number in range(len(sites)))
    return tuple(site for site in by_site if site)


def renamed_nodes(nodes: Sequence[str], names: Mapping[str, str]) -> tuple[str, ...]:
    """The same for nodes of one kind."""
    return tuple(dict.fromkeys(names.get(node, node) for node in nodes))


def leaders_of(sites: Sites, nodes: Sequence[str]) -> tuple[int, ...]:
    """For each rank, whose nodes these are, the rank that leads its site.

    That is the first rank on the first of the site's nodes that is there. A node that no site names is one by
    itself. Where all ranks are at one site none is far from any other, and each leads itself.
    """
    order_of = {node: order for site in sites for order, node in enumerate(site)}
    keys = site_of_each(sites, nodes)
    if len(set(keys)) == 1:
        return tuple(range(len(nodes)))
    leaders: dict[int | str, tuple[int, int]] = {}
    for rank, (key, node) in enumerate(zip(keys, nodes, strict=True)):
        own = order_of.get(node, 0), rank
        leaders[key] = min(leaders.get(key, own), own)
    return tuple(leaders[key][1] for key in keys)


def site_of_each(sites: Sites, nodes: Sequence[str]) -> list[int | str]:
    """The site of each of these nodes: its number, or the node's name where no site names it."""
    number_of = {node: number for number, site in enumerate(sites) for node in site}
    return [number_of.get(node, node) for node in nodes]
