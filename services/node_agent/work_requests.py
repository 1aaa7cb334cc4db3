"""Whether a request for work is accepted, and with how many slots: pure, each answer with its reason."""

from collections.abc import Mapping
from dataclasses import dataclass

from peerloom.kit.quantity_texts import plural
from peerloom.v1.node_agent_pb2 import Refusal
from peerloom.worker.assignment import Work


@dataclass(frozen=True)
class WorkRequest:
    """What a trainer asks for."""

    job_id: str
    max_slots: int
    accelerator_kind: str
    memory_bytes: int
    work: Work


@dataclass(frozen=True)
class NodeView:
    """What the node knows of itself when the request arrives.

    `waiting_bytes` is the memory of accepted workers that haven't started, so it isn't yet missing from
    `available_bytes`; `promised_bytes` is that of all accepted workers. `memory_limit_bytes` 0: no limit.
    `withheld` says why the owner lends nothing just now; empty while the machine is lent.
    `foreign_paths` are the work's arguments that name files the owner doesn't lend, by their names.
    `trainer_doubt` says why the job's trainer can't be trusted; empty for one that the registry lists.
    `plain_via` is the relay of a node whose gradients would travel in the clear; empty for all others.
    """

    total_slots: int
    free_slots: int
    accelerator_kind: str
    device_memory_bytes: int
    available_bytes: int
    waiting_bytes: int
    promised_bytes: int
    memory_limit_bytes: int
    draining: bool
    withheld: str
    torch_installed: bool
    task_known: bool
    allow_code: bool
    foreign_paths: Mapping[str, str]
    trainer_doubt: str
    plain_via: str = ""


@dataclass(frozen=True)
class Decision:
    """How many slots are given, and why; 0 with a refusal."""

    slots: int
    refusal: "Refusal.ValueType"
    reason: str


def decide(request: WorkRequest, node: NodeView) -> Decision:
    """Accepts as many slots as there are and fit, or refuses."""
    refused = _refuse_at_all(request, node) or _refuse_now(request, node)
    if refused is not None:
        return refused
    by_memory, by_owner = _workers_that_fit(request, node)
    if by_memory == 0:
        return _refusal(
            Refusal.REFUSAL_NO_MEMORY,
            f"A worker needs {request.memory_bytes:,} bytes of memory, and "
            f"{max(0, node.available_bytes - node.waiting_bytes):,} are free.",
        )
    if by_owner == 0:
        return _refusal(
            Refusal.REFUSAL_OWNER_LIMITS,
            f"The owner lends {node.memory_limit_bytes:,} bytes of memory and {node.promised_bytes:,} are "
            f"promised: {request.memory_bytes:,} more don't fit.",
        )
    slots = min(request.max_slots, node.free_slots, by_memory, by_owner)
    reason = (
        f"{node.free_slots} of {plural(node.total_slots, 'slot')} free, at most {request.max_slots} asked for"
    )
    if slots < min(request.max_slots, node.free_slots):
        reason += f", and memory suffices for {slots}"
    return Decision(slots, Refusal.REFUSAL_UNSPECIFIED, f"{reason}.")


def _refuse_at_all(request: WorkRequest, node: NodeView) -> Decision | None:
    """Refusals that waiting doesn't change."""
    if node.total_slots == 0:
        return _refusal(Refusal.REFUSAL_NO_COMPUTE, "The node lends no slots; it stores and relays only.")
    if not node.torch_installed:
        return _refusal(
            Refusal.REFUSAL_NO_COMPUTE, "PyTorch isn't installed on the node: pip install 'peerloom[train]'."
        )
    if request.accelerator_kind not in ("", node.accelerator_kind):
        return _refusal(
            Refusal.REFUSAL_NO_ACCELERATOR,
            f"The job wants {request.accelerator_kind} slots; the node's are {node.accelerator_kind}.",
        )
    if request.work.code_digest and not node.allow_code:
        return _refusal(
            Refusal.REFUSAL_OWNER_LIMITS,
            "The job brings code, and the node's owner runs only what is installed there (--allow-code).",
        )
    for name, value in node.foreign_paths.items():
        return _refusal(
            Refusal.REFUSAL_OWNER_LIMITS,
            f"The job reads {value!r} (argument {name}), and the node's owner lends no folder that holds it "
            "(--data-root). Name one that is lent, or bring the data as an artifact.",
        )
    if not node.task_known and not request.work.code_digest:
        task = request.work.task
        package = task.partition(":")[0].partition(".")[0]
        return _refusal(
            Refusal.REFUSAL_UNKNOWN_TASK,
            f"The node can't import {package!r} for the task {task!r}. Install it there.",
        )
    if request.memory_bytes > node.device_memory_bytes:
        return _refusal(
            Refusal.REFUSAL_NO_MEMORY,
            f"A worker needs {request.memory_bytes:,} bytes; a slot has {node.device_memory_bytes:,}.",
        )
    return None


def _refuse_now(request: WorkRequest, node: NodeView) -> Decision | None:
    """Refusals that pass with time."""
    if node.plain_via:
        return _refusal(
            Refusal.REFUSAL_NO_COMPUTE,
            f"Others reach this node through {node.plain_via} only, and gradients pass there by TLS alone. "
            "Let the node join a registry with a door (--join TOKEN), without --plain-collectives.",
        )
    if node.trainer_doubt:
        return _refusal(Refusal.REFUSAL_UNKNOWN_TRAINER, node.trainer_doubt)
    if node.draining:
        return _refusal(Refusal.REFUSAL_DRAINING, "The node is being drained and takes no new work.")
    if node.withheld:
        return _refusal(Refusal.REFUSAL_OWNER_LIMITS, node.withheld)
    if node.free_slots == 0:
        return _refusal(Refusal.REFUSAL_BUSY, f"None of {plural(node.total_slots, 'slot')} is free.")
    return None


def _workers_that_fit(request: WorkRequest, node: NodeView) -> tuple[int, int]:
    """How many workers the free memory and the owner's limit have room for."""
    if request.memory_bytes == 0:
        return request.max_slots, request.max_slots
    by_memory = max(0, node.available_bytes - node.waiting_bytes) // request.memory_bytes
    if node.memory_limit_bytes == 0:
        return by_memory, request.max_slots
    return by_memory, max(0, node.memory_limit_bytes - node.promised_bytes) // request.memory_bytes


def _refusal(refusal: "Refusal.ValueType", reason: str) -> Decision:
    return Decision(0, refusal, reason)
