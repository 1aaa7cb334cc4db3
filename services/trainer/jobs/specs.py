"""What a job may ask for, and whether it can be resumed: pure functions with their reasons."""

import math
import re

from peerloom.errors import InvalidArgumentError
from peerloom.kit.checks import check_name, check_range, check_requirements, check_text
from peerloom.kit.elastic_scripts import SCRIPT_TASK
from peerloom.kit.federated_rounds import is_federated
from peerloom.kit.job_inputs import check_inputs
from peerloom.kit.limits import ENDED_STATES, MAX_BATCH_SIZE, MAX_EPOCHS, MAX_JOB_SPEC_BYTES
from peerloom.kit.parallel_plan import ParallelPlan, asked_plan, is_auto_plan, parse_plan
from peerloom.kit.plan_model.plan_setting import MOST_PLANNED_SLOTS
from peerloom.kit.robust_rules import OFF, check_robust
from peerloom.kit.sync_auto import asked_sync, is_auto
from peerloom.kit.sync_grammar import parse_sync
from peerloom.kit.sync_method import SyncMethod
from peerloom.services.trainer.jobs.federated_entries import with_shards
from peerloom.v1.trainer_pb2 import Backend, Job, JobSpec, JobState
from peerloom.worker.tasks import built_in

DEFAULT_REQUEST_BUDGET = 3
DEFAULT_MIN_WORKERS = 1
MOST_REQUESTS = 1000
DEFAULT_MAX_RESTARTS = 3  # of a script, as torchrun's examples have it
_OF_TRAININGS = frozenset(
    {
        *("task_arguments", "epochs", "batch_size", "learning_rate", "seed", "initial_model_digest"),
        *("backend", "equal_shares", "robust", "sync", "plan"),
    }
)


def complete_spec(spec: JobSpec) -> JobSpec:
    """A checked copy with all defaults filled in that are known here.

    A task of the user's own keeps its own defaults to itself; the workers tell them later.
    Raises InvalidArgumentError naming the field and its limit, or NotFoundError with the nearest task.
    """
    full = JobSpec()
    check_range("spec (bytes)", spec.ByteSize(), 0, MAX_JOB_SPEC_BYTES)
    full.CopyFrom(spec)
    full.DiscardUnknownFields()
    check_inputs("spec", full)
    entry = None if full.HasField("script") else built_in.resolve(full.task)
    if full.HasField("script"):
        _complete_script(full)
    elif entry is not None:
        built_in.check_arguments(entry, dict(full.task_arguments))
        full.epochs = full.epochs if full.HasField("epochs") else entry.epochs
        full.batch_size = full.batch_size if full.HasField("batch_size") else entry.batch_size
        full.learning_rate = full.learning_rate if full.HasField("learning_rate") else entry.learning_rate
    if not full.HasField("script"):
        _complete_plan(full)
    if not full.HasField("request_budget"):
        full.request_budget = DEFAULT_REQUEST_BUDGET
    if not full.HasField("min_workers"):
        full.min_workers = DEFAULT_MIN_WORKERS
    full.robust = full.robust or OFF
    _check(full)
    backend = Backend.Name(full.backend).removeprefix("BACKEND_").lower()
    if not full.HasField("script"):
        asked = with_shards(asked_sync("spec.sync", full.sync, full.robust, backend), full)
        if full.equal_shares and isinstance(asked, SyncMethod) and asked.stale is not None:
            limit = (
                "unset with a staleness or a backup: parts are equal, and who is faster takes more of them"
            )
            raise InvalidArgumentError.of_field("spec.equal_shares", full.equal_shares, limit)
        full.sync = str(asked)
    return full


def _complete_script(spec: JobSpec) -> None:
    for field, value in spec.ListFields():
        if field.name in _OF_TRAININGS:
            limit = "unset for a script, which trains as it likes"
            raise InvalidArgumentError.of_field(f"spec.{field.name}", value, limit)
    if not spec.script.HasField("max_restarts"):
        spec.script.max_restarts = DEFAULT_MAX_RESTARTS


def _complete_plan(spec: JobSpec) -> None:
    spec.plan = asked_plan("spec.plan", spec.plan)
    if is_auto_plan(spec.plan):
        _check_divided(spec, "with plan auto, which may be a pipeline")
        _check_one_batch(spec)
        if spec.max_workers > MOST_PLANNED_SLOTS:
            limit = f"at most {MOST_PLANNED_SLOTS} with plan auto: a search over more would take too long"
            raise InvalidArgumentError.of_field("spec.max_workers", spec.max_workers, limit)
    elif (plan := parse_plan("spec.plan", spec.plan)).is_divided:
        _complete_divided(spec, plan)


def _complete_divided(spec: JobSpec, plan: ParallelPlan) -> None:
    workers = plan.ranks.workers
    what = "shards of the model" if plan.is_sharded else "stages of the pipeline"
    if plan.pieces > 1:
        of_stages = f" in each of {plan.stages} stages" if plan.stages > 1 else ""
        what = f"pieces of the model's layers{of_stages}"
    needed = f"{workers}, the {what}, each of which is one worker"
    if plan.ranks.is_wide:
        needed = f"{workers}, the workers of the pipeline's {plan.stages} stages together"
    if spec.HasField("min_workers") and spec.min_workers != workers:
        raise InvalidArgumentError.of_field("spec.min_workers", spec.min_workers, f"unset, or {needed}")
    spec.min_workers = workers
    if not spec.HasField("max_workers"):
        spec.max_workers = workers
    if spec.max_workers < workers:
        limit = f"unset, or at least {needed}; those beyond are spare"
        raise InvalidArgumentError.of_field("spec.max_workers", spec.max_workers, limit)
    if not spec.HasField("request_budget"):
        spec.request_budget = max(DEFAULT_REQUEST_BUDGET, min(spec.max_workers, MOST_REQUESTS))
    if spec.sync:
        limit = (
            f"unset with plan {plan.kind}: its workers hold other parameters each, and those of one part add "
            "up their gradients in one way"
        )
        raise InvalidArgumentError.of_field("spec.sync", spec.sync, limit)
    _check_divided(spec, f"with plan {plan.kind}")


def _check_divided(spec: JobSpec, when: str) -> None:
    if spec.task == SCRIPT_TASK:
        limit = "data for a script, whose model only it can compute"
        raise InvalidArgumentError.of_field("spec.plan", spec.plan, limit)
    if spec.robust not in ("", OFF):
        limit = (
            f"{OFF} {when}: nobody else holds a worker's part of the model, so nobody can outvote or audit it"
        )
        raise InvalidArgumentError.of_field("spec.robust", spec.robust, limit)
    if spec.equal_shares:
        limit = f"unset {when}, whose workers compute what the plan says"
        raise InvalidArgumentError.of_field("spec.equal_shares", spec.equal_shares, limit)
    if spec.backend == Backend.BACKEND_NCCL:
        limit = f"gloo or unspecified {when}: what goes from worker to worker goes by way of the processor"
        raise InvalidArgumentError.of_field("spec.backend", "nccl", limit)
    spec.backend = Backend.BACKEND_GLOO


def _check_one_batch(spec: JobSpec) -> None:
    """A step must be the same whatever the plan is."""
    if not spec.sync or is_auto(spec.sync):
        return
    method = parse_sync("spec.sync", spec.sync)
    if is_federated(spec.sync) or method.rounds is not None or method.stale is not None:
        limit = (
            "a method whose step is one batch with plan auto: a pipeline has no rounds, nor older gradients"
        )
        raise InvalidArgumentError.of_field("spec.sync", spec.sync, limit)


def resumed_spec(spec: JobSpec, plan: str, method: str = "") -> JobSpec:
    """The spec of a job that goes on under another plan, with what belonged to the old one left open.

    `method` is how its workers synchronised steps last; empty: by an all-reduce.

    Raises InvalidArgumentError naming the field that doesn't go with it.
    """
    other = JobSpec()
    other.CopyFrom(spec)
    if spec.HasField("script"):
        limit = "unset for a script, which trains as it likes"
        raise InvalidArgumentError.of_field("plan", plan, limit)
    other.plan = asked_plan("plan", plan)
    former = 1 if is_auto_plan(spec.plan) else parse_plan("spec.plan", spec.plan).ranks.workers
    is_divided = not is_auto_plan(other.plan) and parse_plan("plan", other.plan).is_divided
    workers = parse_plan("plan", other.plan).ranks.workers if is_divided else 0
    if (is_divided or is_auto_plan(other.plan)) and parse_sync("sync", method).rounds is not None:
        limit = f"data for a job in rounds of local steps ({method}): no pipeline can go on from their state"
        raise InvalidArgumentError.of_field("plan", plan, limit)
    if former > 1 or is_divided:
        other.ClearField("min_workers")
    if spec.max_workers < workers or spec.max_workers == former > 1:
        other.ClearField("max_workers")
    other.request_budget = max(spec.request_budget, workers)
    if spec.sync == str(SyncMethod()):
        other.ClearField("sync")
    return complete_spec(other)


def _check(spec: JobSpec) -> None:
    if spec.HasField("epochs"):
        check_range("spec.epochs", spec.epochs, 1, MAX_EPOCHS)
    if spec.HasField("batch_size"):
        check_range("spec.batch_size", spec.batch_size, 1, MAX_BATCH_SIZE)
    if spec.HasField("learning_rate") and not (spec.learning_rate > 0 and math.isfinite(spec.learning_rate)):
        raise InvalidArgumentError.of_field("spec.learning_rate", spec.learning_rate, "a number above 0")
    check_range("spec.request_budget", spec.request_budget, 1, MOST_REQUESTS)
    check_range("spec.min_workers", spec.min_workers, 1, MAX_BATCH_SIZE)
    if spec.HasField("max_workers"):
        check_range("spec.max_workers", spec.max_workers, 1, MAX_BATCH_SIZE)
        limit = f"at least min_workers, which is {spec.min_workers}"
        if spec.max_workers < spec.min_workers:
            raise InvalidArgumentError.of_field("spec.max_workers", spec.max_workers, limit)
    each_has_own = is_federated(spec.sync)
    if each_has_own and spec.equal_shares:
        limit = "unset with federated rounds: a worker's share is its shard"
        raise InvalidArgumentError.of_field("spec.equal_shares", spec.equal_shares, limit)
    if spec.HasField("batch_size") and spec.batch_size < spec.min_workers and not each_has_own:
        limit = f"at least min_workers, which is {spec.min_workers}: each worker needs a sample"
        raise InvalidArgumentError.of_field("spec.batch_size", spec.batch_size, limit)
    check_text("spec.policy", spec.policy, high=128)
    check_requirements("spec.requirements", spec.requirements)
    if spec.backend not in Backend.values():
        raise InvalidArgumentError.of_field("spec.backend", spec.backend, "gloo, nccl or unspecified")
    check_robust("spec.robust", spec.robust)
    if spec.name:
        check_name("spec.name", spec.name)


def why_not_resumable(job: Job) -> str:
    """Why a job can't go on from a checkpoint; "" when it can."""
    if job.state not in ENDED_STATES:
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
    most = MOST_PLANNED_SLOTS if is_auto_plan(spec.plan) else MAX_BATCH_SIZE
    wanted = spec.max_workers if spec.HasField("max_workers") else most
    return min(wanted, spec.batch_size) if spec.HasField("batch_size") else wanted
