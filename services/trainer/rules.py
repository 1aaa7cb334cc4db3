"""What a job may ask for, and what its answers mean: pure functions with their reasons."""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass

from peerloom.errors import InvalidArgumentError
from peerloom.kit.checks import check_labels, check_name, check_range, check_text
from peerloom.kit.job_inputs import check_inputs
from peerloom.v1.node_agent_pb2 import Refusal
from peerloom.v1.trainer_pb2 import Backend, Job, JobSpec, JobState
from peerloom.worker import catalogue

DEFAULT_REQUEST_BUDGET = 3
DEFAULT_MIN_WORKERS = 1
MAX_EPOCHS = 1_000_000
MAX_BATCH_SIZE = 2**24
ENDED = frozenset(
    {
        JobState.JOB_STATE_SUCCEEDED,
        JobState.JOB_STATE_FAILED,
        JobState.JOB_STATE_CANCELLED,
        JobState.JOB_STATE_NO_COMPUTE,
    }
)


def complete_spec(spec: JobSpec) -> JobSpec:
    """A checked copy with all defaults filled in that are known here.

    A task of the user's own keeps its own defaults to itself; the workers tell them later.
    Raises InvalidArgumentError naming the field and its limit, or NotFoundError with the nearest task.
    """
    full = JobSpec()
    full.CopyFrom(spec)
    check_text("spec.task", full.task, low=1, high=256)
    entry = catalogue.resolve(full.task)
    if entry is not None:
        catalogue.check_arguments(entry, dict(full.task_arguments))
        full.epochs = full.epochs if full.HasField("epochs") else entry.epochs
        full.batch_size = full.batch_size if full.HasField("batch_size") else entry.batch_size
        full.learning_rate = full.learning_rate if full.HasField("learning_rate") else entry.learning_rate
    if not full.HasField("request_budget"):
        full.request_budget = DEFAULT_REQUEST_BUDGET
    if not full.HasField("min_workers"):
        full.min_workers = DEFAULT_MIN_WORKERS
    _check(full)
    return full


def _check(spec: JobSpec) -> None:
    if spec.HasField("epochs"):
        check_range("spec.epochs", spec.epochs, 1, MAX_EPOCHS)
    if spec.HasField("batch_size"):
        check_range("spec.batch_size", spec.batch_size, 1, MAX_BATCH_SIZE)
    if spec.HasField("learning_rate") and not (spec.learning_rate > 0 and math.isfinite(spec.learning_rate)):
        raise InvalidArgumentError.of_field("spec.learning_rate", spec.learning_rate, "a number above 0")
    check_range("spec.request_budget", spec.request_budget, 1, 1000)
    check_range("spec.min_workers", spec.min_workers, 1, MAX_BATCH_SIZE)
    if spec.HasField("max_workers"):
        limit = f"at least min_workers, which is {spec.min_workers}"
        if spec.max_workers < spec.min_workers:
            raise InvalidArgumentError.of_field("spec.max_workers", spec.max_workers, limit)
    if spec.HasField("batch_size") and spec.batch_size < spec.min_workers:
        limit = f"at least min_workers, which is {spec.min_workers}: each worker needs a sample"
        raise InvalidArgumentError.of_field("spec.batch_size", spec.batch_size, limit)
    check_text("spec.policy", spec.policy, high=128)
    check_labels("spec.requirements.labels", dict(spec.requirements.labels))
    check_labels_of_task(spec)
    if spec.backend not in Backend.values():
        raise InvalidArgumentError.of_field("spec.backend", spec.backend, "gloo, nccl or unspecified")
    check_inputs(spec)
    if spec.name:
        check_name("spec.name", spec.name)


def check_labels_of_task(spec: JobSpec) -> None:
    """Raises InvalidArgumentError for more than 32 task arguments, or a value over 4096 characters."""
    check_range("spec.task_arguments (entries)", len(spec.task_arguments), 0, 32)
    for key, value in spec.task_arguments.items():
        check_text("spec.task_arguments key", key, low=1, high=63)
        check_text(f"spec.task_arguments[{key}]", value, high=4096)


def why_not_resumable(job: Job) -> str:
    """Why a job can't go on from a checkpoint; "" when it can."""
    if job.state not in ENDED:
        return "it has not ended"
    if job.state == JobState.JOB_STATE_SUCCEEDED:
        return "it has succeeded; train further with its model as initial_model"
    if not job.HasField("checkpoint"):
        return "it ended before its first checkpoint; submit it anew"
    return ""


def model_name(spec: JobSpec) -> str:
    """What the job's models are called: its own name, or else one made of its task's."""
    words = re.sub("[^a-z0-9]+", "-", spec.task.rpartition(":")[2].lower())
    return spec.name or words[:63].strip("-") or "model"


def slots_wanted(spec: JobSpec) -> int:
    """Most slots that the job can use: max_workers, and never more workers than samples in a batch."""
    wanted = spec.max_workers if spec.HasField("max_workers") else MAX_BATCH_SIZE
    return min(wanted, spec.batch_size) if spec.HasField("batch_size") else wanted


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


def choose_backend(requested: int, kinds: Sequence[str]) -> "tuple[Backend.ValueType, str]":
    """The collective library for slots of these kinds, and why. The request wins where there is one."""
    if requested == Backend.BACKEND_NCCL or requested == Backend.BACKEND_GLOO:
        return Backend.ValueType(requested), "the job asked for it"
    if kinds and all(kind == "cuda" for kind in kinds):
        return Backend.BACKEND_NCCL, "every slot is a GPU"
    return Backend.BACKEND_GLOO, "not every slot is a GPU"


def verdict(slots: int, spec: JobSpec, asked: int) -> tuple[bool, str]:
    """Whether the round reached enough compute, and why."""
    if slots == 0:
        return False, f"none of the {asked} nodes that were asked could give a slot"
    if slots < spec.min_workers:
        return False, f"{slots} slots were given, and the job needs at least {spec.min_workers} workers"
    return True, f"{slots} slots on the nodes that accepted"


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
