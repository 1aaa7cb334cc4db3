"""Typed ids, and the one source of all that nobody may guess."""

import random
import uuid
from typing import NewType

NodeId = NewType("NodeId", str)
LeaseId = NewType("LeaseId", str)
JobId = NewType("JobId", str)
WorkerId = NewType("WorkerId", str)
ReservationId = NewType("ReservationId", str)
Digest = NewType("Digest", str)

# The system's own; a simulation puts a seeded one in its place, so that a history can be had again.
entropy: random.Random = random.SystemRandom()


def _random(kind: str) -> str:
    return f"{kind}-{entropy.randbytes(6).hex()}"


def new_node_id() -> NodeId:
    """A fresh node id, "node-" and 12 hexadecimal digits."""
    return NodeId(_random("node"))


def new_lease_id() -> LeaseId:
    """A fresh lease id; as secret as a password for the session's length."""
    return LeaseId(f"lease-{entropy.randbytes(16).hex()}")


def new_job_id() -> JobId:
    """A fresh job id, "job-" and 12 hexadecimal digits."""
    return JobId(_random("job"))


def new_worker_id() -> WorkerId:
    """A fresh worker id, "worker-" and 12 hexadecimal digits."""
    return WorkerId(_random("worker"))


def new_reservation_id() -> ReservationId:
    """A fresh reservation id."""
    return ReservationId(_random("reservation"))


def new_token_id() -> str:
    """Names a token that admits somebody, "token-" and 12 hexadecimal digits."""
    return _random("token")


def new_request_id() -> str:
    """Names one attempt of a call that may be repeated; a UUID, as a registry's own name is."""
    return str(uuid.UUID(bytes=entropy.randbytes(16), version=4))


def new_secret() -> str:
    """A node's key, or what a worker proves itself with: 64 hexadecimal digits."""
    return entropy.randbytes(32).hex()
