"""What a job may ask for, and whether it can be resumed: pure functions with their reasons."""

import math
import re

from peerloom.errors import InvalidArgumentError
from peerloom.kit.checks import check_name, check_range, check_requirements, check_text
from peerloom.kit.elastic_scripts import SCRIPT_TASK
from peerloom.kit.federated_rounds import is_federated
from peerloom.kit.job_inputs import check_inputs
from peerloom.kit.limits import ENDED_STATES, MAX_BATCH_SIZE, MAX_EPOCHS, MAX_JOB_SPEC_BYTES
from peerloom.kit.parallel_plan import parse_plan
from peerloom.kit.robust_rules import OFF, check_robust
from peerloom.kit.sync_auto import asked_sync
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
    plan = parse_plan("spec.plan", spec.plan)
    spec.plan = str(plan)
    if not plan.is_pipeline:
        return
    if spec.task == SCRIPT_TASK:
        limit = "data for a script, whose model only it can compute"
        raise InvalidArgumentError.of_field("spec.plan", spec.plan, limit)
    stages = f"{plan.stages}, the stages of the pipeline, each of which is one worker"
    if spec.HasField("min_workers") and spec.min_workers != plan.stages:
        raise InvalidArgumentError.of_field("spec.min_workers", spec.min_workers, f"unset, or {stages}")
    spec.min_workers = plan.stages
    if not spec.HasField("max_workers"):
        spec.max_workers = plan.stages
    if spec.max_workers < plan.stages:
        limit = f"unset, or at least {stages}; those beyond are spare"
        raise InvalidArgumentError.of_field("spec.max_workers", spec.max_workers, limit)
    if not spec.HasField("request_budget"):
        spec.request_budget = max(DEFAULT_REQUEST_BUDGET, min(spec.max_workers, MOST_REQUESTS))
    if spec.sync:
        limit = (
            "unset with a pipeline: no two of its workers hold the same parameters, so nothing is added up"
        )
        raise InvalidArgumentError.of_field("spec.sync", spec.sync, limit)
    if spec.robust not in ("", OFF):
        limit = f"{OFF} with a pipeline: nobody else holds a stage, so nobody can outvote or audit it"
        raise InvalidArgumentError.of_field("spec.robust", spec.robust, limit)
    if spec.equal_shares:
        limit = "unset with a pipeline: each sample goes through all of its stages"
        raise InvalidArgumentError.of_field("spec.equal_shares", spec.equal_shares, limit)
    if spec.backend == Backend.BACKEND_NCCL:
        limit = (
            "gloo or unspecified with a pipeline: what goes from stage to stage goes by way of the processor"
        )
        raise InvalidArgumentError.of_field("spec.backend", "nccl", limit)
    spec.backend = Backend.BACKEND_GLOO


def is_pipeline(spec: JobSpec) -> bool:
    """Whether its workers hold a part of the model each."""
    return stages_of(spec) > 1


def stages_of(spec: JobSpec) -> int:
    """Parts of the model that are computed one after the other."""
    return parse_plan("spec.plan", spec.plan).stages


def has_shadows(spec: JobSpec) -> bool:
    """Whether the state of each of its stages is kept by another worker too."""
    plan = parse_plan("spec.plan", spec.plan)
    return plan.is_pipeline and plan.shadow


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
    wanted = spec.max_workers if spec.HasField("max_workers") else MAX_BATCH_SIZE
    return min(wanted, spec.batch_size) if spec.HasField("batch_size") else wanted
