"""Typed ids."""

import secrets
import uuid
from typing import NewType

NodeId = NewType("NodeId", str)
LeaseId = NewType("LeaseId", str)
JobId = NewType("JobId", str)
WorkerId = NewType("WorkerId", str)
ReservationId = NewType("ReservationId", str)
Digest = NewType("Digest", str)


def _random(kind: str) -> str:
    return f"{kind}-{secrets.token_hex(6)}"


def new_node_id() -> NodeId:
    """A fresh node id, "node-" and 12 hexadecimal digits."""
    return NodeId(_random("node"))


def new_lease_id() -> LeaseId:
    """A fresh lease id; as secret as a password for the session's length."""
    return LeaseId(f"lease-{secrets.token_hex(16)}")


def new_job_id() -> JobId:
    """A fresh job id, "job-" and 12 hexadecimal digits."""
    return JobId(_random("job"))


def new_worker_id() -> WorkerId:
    """A fresh worker id, "worker-" and 12 hexadecimal digits."""
    return WorkerId(_random("worker"))


def new_reservation_id() -> ReservationId:
    """A fresh reservation id."""
    return ReservationId(_random("reservation"))


def new_request_id() -> str:
    """Names one attempt of a call that may be repeated."""
    return str(uuid.uuid4())
