"""Holders that a caller names: each has an address that can be dialled, and words that can be printed."""

from collections.abc import Collection

from peerloom.kit.checks import check_address, check_line, check_range
from peerloom.v1.artifact_pb2 import ArtifactHolder

HOLDERS_LIMIT = 100


def check_holders(field: str, holders: Collection[ArtifactHolder]) -> None:
    """Raises InvalidArgumentError for more than 100 holders, or one that can't be."""
    check_range(f"{field}' length", len(holders), 0, HOLDERS_LIMIT)
    for holder in holders:
        check_address(f"{field}.address", holder.address)
        check_line(f"{field}.node_id", holder.node_id, high=64)
        check_line(f"{field}.name", holder.name, high=128)
