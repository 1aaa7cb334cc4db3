"""Jobs: who does what was asked, how far it is, what it left."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal

from peerloom.client.types.artifacts import Artifact
from peerloom.client.types.job_plans import PlanInUse
from peerloom.client.types.job_records import (
    AuditReport,
    Evaluation,
    Ledger,
    ModelStage,
    NetworkTraffic,
    NodeChoice,
    ScriptRun,
    StageShadow,
    SyncInUse,
)
from peerloom.client.types.job_specs import Backend, JobSpec
from peerloom.client.types.shown import ShownInNotebooks
from peerloom.errors import CancelledError, FailedPreconditionError
from peerloom.kit.limits import ENDED_STATES
from peerloom.kit.quantity_texts import plural
from peerloom.kit.raw_input import RawInput
from peerloom.kit.script_output import Stream
from peerloom.v1.trainer_pb2 import JobState as JobStateNumber

JobState = Literal[
    "queued",
    "selecting",
    "starting",
    "running",
    "waiting",
    "finishing",
    "succeeded",
    "failed",
    "cancelled",
    "no_compute",
    "unknown",
]
FINAL_STATES: frozenset[str] = frozenset(
    JobStateNumber.Name(state).removeprefix("JOB_STATE_").lower() for state in ENDED_STATES
)


@dataclass(frozen=True)
class NodeAnswer(ShownInNotebooks):
    """A node that was asked for compute, and what it said.

    `belief` and `chosen_because` are the selector's when it was chosen; `accepted_slots` is 0 when it
    refused or didn't answer, and `reason` is its own; `answer_s` is how long it took, in seconds.
    """

    node_id: str
    name: str
    address: str
    slots: int
    belief: float
    chosen_because: str
    accepted_slots: int
    reason: str
    answer_s: float

    @property
    def accepted(self) -> bool:
        """It gave at least one slot."""
        return self.accepted_slots > 0

    def __str__(self) -> str:
        given = f"gave {plural(self.accepted_slots, 'slot')}" if self.accepted else "refused"
        return f"{self.name} (belief {self.belief:.4f}) {given}: {self.reason}"


@dataclass(frozen=True)
class Worker(ShownInNotebooks):
    """A training process of a job; `rank` is its place in `generation`, the newest that it was a member of.

    That is 0 before there was one. `stage` is its part of a pipeline, `shadow` its copy of another one's.
    """

    id: str
    node_id: str
    node_name: str
    rank: int
    ended: bool
    end_reason: str
    stage: ModelStage | None = None
    shadow: StageShadow | None = None
    generation: int = 0


@dataclass(frozen=True)
class Progress:
    """What a job has reached; `loss` is None before the first step, `metric` before the first epoch's end.

    `metrics` is what a script with an elastic loop logged last. With rounds of local steps those of a round
    are committed at once.
    """

    step: int
    total_steps: int | None
    epoch: int
    total_epochs: int | None
    loss: float | None
    samples_per_s: float | None
    metric: float | None
    metric_name: str | None
    metrics: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class JobResult(ShownInNotebooks):
    """How a job ended and what it left.

    All but `job_id`, `state` and `reason` may be None: a job that ended badly leaves no model. `model_path`
    is on the trainer's machine. Times are in seconds; `communicated_bytes` is what one worker sent to others
    in all. A step is a batch, or a round of them where the job's `sync` has a period. `exit_status` is a
    script's: 0, or that of the process that failed first, minus the signal for one that was killed.
    """

    job_id: str
    state: JobState
    reason: str
    model: Artifact | None
    model_path: str | None
    model_nodes: tuple[str, ...]
    metric: float | None
    metric_name: str | None
    training_s: float | None
    samples: int | None
    samples_per_s: float | None
    compute_s_per_step: float | None
    communication_s_per_step: float | None
    communicated_bytes: int | None
    exit_status: int | None = None

    @property
    def succeeded(self) -> bool:
        """The model is there, or the script has ended with status 0 on all its workers."""
        return self.state == "succeeded"

    def raise_for_state(self) -> "JobResult":
        """Returns itself when the job succeeded.

        Raises FailedPreconditionError (reason JOB_FAILED or JOB_NO_COMPUTE) or CancelledError (reason
        JOB_CANCELLED) otherwise; the metadata names the job.
        """
        if self.succeeded:
            return self
        kind = CancelledError if self.state == "cancelled" else FailedPreconditionError
        words = self.state.replace("_", " ")
        message = f"{self.job_id} ended in the state {words}: {self.reason or 'no reason was given'}"
        raise kind(message, reason=f"JOB_{self.state.upper()}", metadata={"job_id": self.job_id})

    def __str__(self) -> str:
        if not self.succeeded:
            return f"{self.job_id} {self.state}: {self.reason}"
        metric = f", {self.metric_name} {self.metric:.4f}" if self.metric is not None else ""
        speed = f", {self.samples_per_s:,.0f} samples/s" if self.samples_per_s is not None else ""
        return f"{self.job_id} succeeded{metric}{speed}"


@dataclass(frozen=True)
class Job(ShownInNotebooks):
    """A job as it was when asked: a snapshot that doesn't change.

    `answers` are in the order of asking; `generation` is 0 before there was one; `backend` is None until a
    collective library was chosen; `result` is set once the job has ended, however it ended; it was
    `begun_anew` so often, as all who had its state were lost before a checkpoint; `checkpoint_step` is how
    far its newest durable checkpoint goes, None before there is one, and `checkpoint` its digest, empty where
    there is none or the job has a model; `ledger` is None before the first step, and in lists of jobs;
    `traffic` is what its network carried, None where no testbed counted it; `audits` is None where no share
    was computed again; `evaluation` is what the trainer found of its model, None before it has looked;
    `choice` is None before nodes were looked for; `script_run` is what failed of a script, None for nothing;
    `files` is the digest of what it had in its folders when that was last stored, empty for nothing; `sync`
    and `plan` are what the trainer chose where the job's are "auto", else None, as before its first
    generation; `trace_id` is its trace's, empty for none.
    """

    id: str
    spec: JobSpec
    state: JobState
    reason: str
    answers: tuple[NodeAnswer, ...]
    workers: tuple[Worker, ...]
    generation: int
    backend: Backend | None
    progress: Progress | None
    result: JobResult | None
    submit_time: datetime | None
    first_step_time: datetime | None
    end_time: datetime | None
    checkpoint_step: int | None = None
    checkpoint: str = ""
    ledger: Ledger | None = None
    traffic: NetworkTraffic | None = None
    audits: AuditReport | None = None
    evaluation: Evaluation | None = None
    choice: NodeChoice | None = None
    script_run: ScriptRun | None = None
    files: str = ""
    sync: SyncInUse | None = None
    plan: PlanInUse | None = None
    trace_id: str = ""
    begun_anew: int = 0

    @property
    def ended(self) -> bool:
        """Its state is a final one."""
        return self.state in FINAL_STATES

    def __str__(self) -> str:
        done = ""
        if self.progress is not None and self.progress.total_steps:
            done = f", step {self.progress.step} of {self.progress.total_steps}"
        return f"{self.id} ({self.spec.task}) {self.state}{done}"


@dataclass(frozen=True)
class Model(ShownInNotebooks):
    """A model that a job left with the trainer: `name`:`version`, or its digest.

    `initial_model` is the digest of the parameters that it began with, empty for fresh ones; `raw_input` is
    what its file says of raw inputs, None for a model that takes tensors only.
    """

    digest: str
    size_bytes: int
    name: str
    version: int
    job_id: str
    task: str
    metric: float | None
    metric_name: str | None
    create_time: datetime | None
    initial_model: str = ""
    raw_input: RawInput | None = None

    @property
    def reference(self) -> str:
        """E.g. "digits:3"."""
        return f"{self.name}:{self.version}"

    def __str__(self) -> str:
        metric = f", {self.metric_name} {self.metric:.4f}" if self.metric is not None else ""
        what = f"{self.task}, {self.size_bytes:,} bytes{metric}"
        return f"{self.reference} {self.digest[:12]} ({what}) of {self.job_id}"


@dataclass(frozen=True)
class LogLine:
    """One line that a worker printed, without its end.

    A script's own lines have its process's `rank`, and "out" or "err" as `stream`; all others None.
    """

    node_name: str
    worker_id: str
    line: str
    rank: int | None = None
    stream: Stream | None = None

    def __str__(self) -> str:
        rank = "" if self.rank is None else f" [{self.rank}]"
        return f"{self.node_name} {self.worker_id}{rank}: {self.line}"
