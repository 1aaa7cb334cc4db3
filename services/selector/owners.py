"""Who stands behind a node: what one owner's names did counts for all of them. Pure."""

from collections.abc import Mapping

OWNER_LABEL = "owner"
_LOOPBACK = ("localhost", "127.", "[::1]", "::1")


def owner_of(node_id: str, address: str, labels: Mapping[str, str]) -> str:
    """The owner's key: the host of the node's address, which a new name doesn't change.

    A label is only a node's own word, so it could split one owner into many; it counts on loopback alone,
    where one user started everything and where, without it, each node stands for itself. A node without an
    address (we know its evidence, and not yet the node) stands for itself too.
    """
    host = address.rpartition(":")[0].lower()
    if not host:
        return f"node {node_id}"
    if host.startswith(_LOOPBACK):
        owner = labels.get(OWNER_LABEL, "")
        return f"label {owner}" if owner else f"node {node_id}"
    return f"host {host}"
