"""Whose a node is, for whoever counts owners and not names."""

from collections.abc import Mapping

OWNER_LABEL = "owner"
REGISTRY_OWNER = "registry"  # of what belongs to whoever runs the registry
_LOOPBACK = ("localhost", "127.", "[::1]", "::1")


def voter(node_id: str, certified: str) -> str:
    """Who has one vote with all its nodes: the certificate's owner, else the node itself.

    The nodes of whoever runs the registry vote each for itself, as do those without a certificate.
    """
    return certified if certified not in ("", REGISTRY_OWNER) else node_id


def owner_of(node_id: str, address: str, labels: Mapping[str, str], certified: str = "") -> str:
    """The owner's key: whom the node's certificate names, else the host of its address.

    With a door `certified` is that owner: many addresses are no more of them, and who shares an address with
    others answers for nobody else. Nodes of whoever runs the registry stand for themselves each: one of its
    own tokens admitted each, and it gains nothing by more names. Without a door `certified` is empty. A new
    name doesn't change the host; a label is only a node's own word, so it could split one owner into many; it
    counts on loopback alone, where one user started everything and where, without it, each node stands for
    itself. A node without an address (there is only evidence about it yet) stands for itself too.
    """
    if certified:
        return f"node {node_id}" if certified == REGISTRY_OWNER else f"owner {certified}"
    host = address.rpartition(":")[0].lower()
    if not host:
        return f"node {node_id}"
    if host.startswith(_LOOPBACK):
        owner = labels.get(OWNER_LABEL, "")
        return f"label {owner}" if owner else f"node {node_id}"
    return f"host {host}"
