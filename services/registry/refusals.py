"""What the registry refuses, and what to do then."""

from peerloom.errors import AlreadyExistsError, NotFoundError, ResourceExhaustedError
from peerloom.kit.clock import to_timestamp
from peerloom.services.registry.records import NodeRecord


def lease_ended(lease_id: str) -> NotFoundError:
    """For a lease that is not open; tells only its beginning, because a lease is a secret."""
    return NotFoundError(
        f"The lease {lease_id[:12]}... has ended or never was: register again.", reason="LEASE_ENDED"
    )


def name_taken(holder: NodeRecord, reason: str) -> AlreadyExistsError:
    """For a name that another node holds: who, and since when."""
    since = to_timestamp(holder.registered_s).ToJsonString()
    return AlreadyExistsError(
        f"The name {holder.name!r} belongs since {since} to {holder.node_id} at {holder.spec.address}. "
        f"{reason} Choose another name; or, if this is the same machine, start the agent on its former "
        "state folder, where its key lies.",
        reason="NODE_NAME_TAKEN",
        metadata={"name": holder.name, "node_id": holder.node_id, "since": since},
    )


def node_limit_reached(limit: int) -> ResourceExhaustedError:
    """For a newcomer when the registry is full."""
    return ResourceExhaustedError(
        f"The registry knows {limit:,} nodes, its limit; raise node_limit to admit more.",
        reason="NODE_LIMIT",
        metadata={"limit": str(limit)},
    )
