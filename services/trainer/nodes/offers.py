"""What the nodes' answers to a request for work mean: pure functions with their reasons."""

from collections.abc import Sequence
from dataclasses import dataclass

from peerloom.kit.quantity_texts import plural
from peerloom.v1.node_agent_pb2 import Refusal
from peerloom.v1.trainer_pb2 import Backend, JobSpec


@dataclass(frozen=True)
class Offer:
    """What one node gave; `slots` 0 when it refused."""

    node_id: str
    slots: int
    accelerator_kind: str


def take_slots(offers: Sequence[Offer], wanted: int) -> list[int]:
    """How many slots to use of each offer, in the order of the ranking, until enough are found."""
    taken, left = [], wanted
    for offer in offers:
        use = min(offer.slots, left)
        taken.append(use)
        left -= use
    return taken


def choose_backend(
    requested: int, kinds: Sequence[str], why_not_nccl: str = ""
) -> "tuple[Backend.ValueType, str]":
    """The collective library for slots of these kinds, and why. The request wins where there is one."""
    if requested == Backend.BACKEND_NCCL or requested == Backend.BACKEND_GLOO:
        return Backend.ValueType(requested), "the job asked for it"
    if why_not_nccl:
        return Backend.BACKEND_GLOO, why_not_nccl
    if kinds and all(kind == "cuda" for kind in kinds):
        return Backend.BACKEND_NCCL, "every slot is a GPU"
    return Backend.BACKEND_GLOO, "not every slot is a GPU"


def verdict(slots: int, spec: JobSpec, asked: int) -> tuple[bool, str]:
    """Whether the round reached enough compute, and why."""
    if slots == 0:
        return False, f"none of {plural(asked, 'node')} asked could give a slot"
    if slots < spec.min_workers:
        needed = plural(spec.min_workers, "worker")
        return False, f"{plural(slots, 'slot')} given, and the job needs at least {needed}"
    return True, f"{plural(slots, 'slot')} on the nodes that accepted"


# A refusal that says something of the node, not of the job or of its owner's wishes.
_UNFINISHED = frozenset(
    {
        Refusal.REFUSAL_NO_COMPUTE,
        Refusal.REFUSAL_BUSY,
        Refusal.REFUSAL_NO_ACCELERATOR,
        Refusal.REFUSAL_NO_MEMORY,
    }
)


def counts_as_unfinished(refusal: int) -> bool:
    """Whether a refusal is evidence: the thesis's "received a request and had no means to satisfy it"."""
    return refusal in _UNFINISHED
