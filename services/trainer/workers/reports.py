"""Whether what a worker says can be true: pure functions that return "" or why it can't.

A worker runs on a machine that isn't ours, so its word moves a job only within what the trainer itself knows:
which steps there are, in which order they come, which samples each of them uses, and what ends a training.
"""

import math
import re
from collections.abc import Sequence

from peerloom.kit.audit_rules import MAX_DIFFERENCE, TOLERANCE
from peerloom.kit.elastic_scripts import METRIC_NAME_LONGEST, METRICS_MOST, SCRIPT_TASK
from peerloom.kit.federated_rounds import is_federated
from peerloom.kit.limits import (
    MAX_BATCH_SIZE,
    MAX_EPOCHS,
    MAX_REASON_CHARACTERS,
    MAX_SPEED_GFLOPS,
    MAX_TRAINING_SAMPLES,
)
from peerloom.services.trainer.jobs.federated_entries import why_not_round
from peerloom.services.trainer.jobs.sample_ledger import (
    epochs_of,
    judge_in,
    planned_steps,
    step_samples,
    steps_per_epoch,
    total_steps,
)
from peerloom.services.trainer.jobs.stale_entries import is_stale, why_not_parts
from peerloom.services.trainer.workers.stage_reports import (
    why_not_held,
    why_not_shadow,
    why_not_stage,
    why_not_surveyed,
)
from peerloom.services.trainer.workers.state import Finished, Lost, WorkerState
from peerloom.v1.trainer_pb2 import (
    Checkpoint,
    EpochProgress,
    Job,
    ScriptExit,
    StepProgress,
    Worker,
    WorkerAborted,
    WorkerAccusation,
    WorkerFinished,
    WorkerMeasured,
    WorkerPrepared,
    WorkerSessionRequest,
    WorkerSteps,
)

MAX_NAME_CHARACTERS = 63
SCRIPT_LINES_CHARACTERS = 4096
MIN_FIGURE, MAX_FIGURE = 1e-12, 1e12  # of seconds, and of samples or bits a second
MOST_CODECS, MOST_LAYERS, MAX_PARAMETERS = 16, 128, 1 << 40
_DIGEST = re.compile("[0-9a-f]{64}")


def why_not_said(job: Job, request: WorkerSessionRequest) -> str:
    """What can't be true of a worker's message, other than that it has finished."""
    match request.WhichOneof("message"):
        case "prepared":
            return why_not_prepared(job, request.prepared)
        case "steps":
            return _why_not_steps(request.steps)
        case "epoch":
            return _why_not_epoch(job, request.epoch)
        case "checkpoint":
            return _why_not_checkpoint(job, request.checkpoint)
        case "ready" if request.ready.HasField("stage"):
            return why_not_stage(job, request.ready.stage)
        case "beat":
            why_not = why_not_shadow(job, request.beat.shadow) if request.beat.HasField("shadow") else ""
            return why_not or _why_not_measured(compute_s_per_sample=request.beat.compute_s_per_sample)
        case "accusation":
            return _why_not_accused(job, request.accusation)
        case "measured":
            return _why_not_measurements(job, request.measured)
        case "unrepeatable" if len(request.unrepeatable.reason) > MAX_REASON_CHARACTERS:
            return f"its reason has more than {MAX_REASON_CHARACTERS} characters"
        case "refusal" if len(request.refusal.node_ids) > len(job.workers):
            return (
                f"it refuses {len(request.refusal.node_ids)} nodes of a job with {len(job.workers)} workers"
            )
        case "refusal" if not 1 <= request.refusal.step <= total_steps(job):
            return f"it refuses in step {request.refusal.step} of {total_steps(job)}"
        case "aborted":
            return _why_not_aborted(job, request.aborted)
        case "finished" if request.finished.HasField("script_files"):
            return _why_not_files(job, request.finished.script_files)
        case "leaving":
            return _why_not_measured(grace_s=request.leaving.grace_s)
    return ""


def why_not_together(is_tls: bool, worker: WorkerState, workers: Sequence[WorkerState]) -> str:
    """Why a worker can't exchange gradients with the others: it would send them by TLS, and they not, or so.

    What those say who came first holds for the job.
    """
    alive = [w for w in workers if w.is_tls is not None and not isinstance(w.phase, Lost)]
    others = [w for w in alive if w.worker_id != worker.worker_id and w.is_tls != is_tls]
    if not others:
        return ""
    ways = ("in the clear", "by TLS")
    return (
        f"its gradients travel {ways[is_tls]}, those of {others[0].worker_id} {ways[not is_tls]}: start all "
        "nodes of a job with an identity, or all with --plain-collectives"
    )


def why_not_prepared(job: Job, prepared: WorkerPrepared) -> str:
    """Why this can't be what the job trains: outside the limits, or not what the job or others said."""
    spec, known = job.spec, job.ledger.training_samples
    if spec.HasField("script"):
        return "" if prepared == WorkerPrepared() else "it tells of a training, and the job is a script"
    for name, low, high in (("epochs", 1, MAX_EPOCHS), ("batch_size", 1, MAX_BATCH_SIZE)):
        if not low <= getattr(prepared, name) <= high:
            return f"its {name} is {getattr(prepared, name)}, but must be from {low} to {high}"
    if not (prepared.learning_rate > 0 and math.isfinite(prepared.learning_rate)):
        return f"its learning_rate is {prepared.learning_rate}, but must be a number above 0"
    if not 1 <= prepared.training_samples <= MAX_TRAINING_SAMPLES:
        return f"its training set has {prepared.training_samples} samples, but must have 1 to 2^40"
    if not 0 <= prepared.speed_gflops <= MAX_SPEED_GFLOPS:
        return f"its speed_gflops is {prepared.speed_gflops}, but must be from 0 to {MAX_SPEED_GFLOPS:,.0f}"
    for setting in ("epochs", "batch_size", "learning_rate"):
        said, agreed = getattr(prepared, setting), getattr(spec, setting)
        if spec.HasField(setting) and said != agreed:
            return f"its {setting} is {said}, the job's is {agreed}: it has another version of the task"
    if known and prepared.training_samples != known:
        return f"its training set has {prepared.training_samples} samples, that of the others {known}"
    return why_not_surveyed(job, prepared)


def why_not_finished(job: Job, worker: Worker, said: WorkerFinished) -> str:
    """Why this member of the newest generation can't have made the job's last step."""
    if worker.generation != job.generation:
        return f"it says that it has finished, and belongs to generation {worker.generation} only"
    if job.spec.HasField("script"):
        return "" if not said.model.digest else "it brings a model, and the job is a script"
    if said.stopped_at_step and job.spec.task != SCRIPT_TASK:
        return f"it says that it stopped after step {said.stopped_at_step}, which only a script may"
    if said.stopped_at_step > planned_steps(job):
        return f"it says that it stopped after step {said.stopped_at_step} of {planned_steps(job)}"
    if why_not := why_not_held(job, said.held):
        return why_not
    if not _DIGEST.fullmatch(said.parameters_digest):
        return "it has finished, and its parameters_digest is no SHA-256"
    if worker.rank:
        return f"it brings a model, though its rank is {worker.rank}" if said.model.digest else ""
    if not _DIGEST.fullmatch(said.model.digest):
        return "it has finished as rank 0, and brings no model that has a SHA-256 for a digest"
    steps = said.stopped_at_step or total_steps(job)
    if not steps or job.progress.step != steps:
        return f"it says that it has finished after {job.progress.step} of {steps} steps"
    return ""


def why_not_complete(job: Job, workers: Sequence[WorkerState]) -> str:
    """Why a job whose workers have finished has no result that can be trusted."""
    is_exact, verdict = judge_in(job, epochs_of(job))
    if not is_exact:
        return f"the ledger of samples is not exact ({verdict}); no result can be trusted"
    if job.progress.step != total_steps(job):
        return f"{job.progress.step} of {total_steps(job)} steps were reported; no result can be trusted"
    digests = {word.parameters_digest for word in last_words(workers)}
    if len(digests) > 1:
        return f"the workers' final parameters differ ({len(digests)} versions); no result can be trusted"
    return ""


def last_words(workers: Sequence[WorkerState]) -> list[WorkerFinished]:
    """What those said who have finished, also if they were lost since."""
    said = [w.phase.said for w in workers if isinstance(w.phase, Finished | Lost)]
    return [word for word in said if word is not None]


def _why_not_steps(said: WorkerSteps) -> str:
    if len(said.steps) == len(said.ages_s) and all(0 <= age_s <= MAX_FIGURE for age_s in said.ages_s):
        return ""
    return f"it reports {len(said.steps)} steps, of which not each has an age"


def why_not_step(job: Job, step: StepProgress) -> str:
    """What can't be true of a step that a worker reports, after all those that are entered."""
    per_epoch, whole, samples = steps_per_epoch(job), step_samples(job), job.ledger.training_samples
    if step.step <= job.progress.step:
        return ""  # told again after its session broke; it isn't entered
    if step.step != job.progress.step + 1 or step.step > total_steps(job):
        return f"it reports step {step.step} of {total_steps(job)} after step {job.progress.step}"
    epoch, place = divmod(step.step - 1, per_epoch)
    first = place * whole
    expected = (epoch + 1, first, min(whole, samples - first))
    if is_federated(job.spec.sync):
        if why_not := why_not_round(job, step):
            return why_not
    elif (step.epoch, step.first_sample, step.samples) != expected:
        return (
            f"it reports step {step.step} with {step.samples} samples from {step.first_sample} of epoch "
            f"{step.epoch}, but that step has {expected[2]} from {expected[1]} of epoch {expected[0]}"
        )
    if is_stale(job) and (why_not := why_not_parts(job, step)):
        return why_not
    if not 1 <= step.generation <= job.generation:
        return f"it reports a step of generation {step.generation} of {job.generation}"
    if len(step.batch_shares) > len(job.workers):
        return f"it divides batches among {len(step.batch_shares)} of {len(job.workers)} workers"
    logged = {*job.progress.metrics, *step.metrics}
    if len(logged) > METRICS_MOST or any(not 1 <= len(name) <= METRIC_NAME_LONGEST for name in logged):
        return (
            f"it logs {len(logged)} numbers; a job may have {METRICS_MOST}, of names with 1 to "
            f"{METRIC_NAME_LONGEST} characters"
        )
    return _why_not_measured(
        step_s=step.step_s,
        compute_s=step.compute_s,
        communication_s=step.communication_s,
        samples_per_s=step.samples_per_s,
    )


def _why_not_epoch(job: Job, epoch: EpochProgress) -> str:
    if epoch.epoch * steps_per_epoch(job) > job.progress.step or not job.progress.step:
        return f"it reports the end of epoch {epoch.epoch} after step {job.progress.step}"
    if len(epoch.metric_name) > MAX_NAME_CHARACTERS:
        return f"its metric's name has {len(epoch.metric_name)} characters, over {MAX_NAME_CHARACTERS}"
    return ""


def _why_not_checkpoint(job: Job, checkpoint: Checkpoint) -> str:
    if not _DIGEST.fullmatch(checkpoint.artifact.digest):
        return "it offers a checkpoint that has no SHA-256 for a digest"
    if checkpoint.step > total_steps(job) or checkpoint.epoch > job.spec.epochs:
        return f"it offers a checkpoint of step {checkpoint.step} of {total_steps(job)}"
    return ""


def _why_not_accused(job: Job, said: WorkerAccusation) -> str:
    if not 1 <= said.step <= total_steps(job) or not 1 <= said.generation <= job.generation:
        return f"it accuses of step {said.step} of {total_steps(job)} in generation {said.generation}"
    if not TOLERANCE < said.difference <= MAX_DIFFERENCE:
        return f"it accuses of a difference of {said.difference}, not of one above {TOLERANCE}"
    return ""


def _why_not_aborted(job: Job, said: WorkerAborted) -> str:
    why_not = why_not_held(job, said.held)
    why_not = why_not or (_why_not_files(job, said.script_files) if said.HasField("script_files") else "")
    return why_not or (_why_not_exited(job, said.script_exit) if said.HasField("script_exit") else "")


def _why_not_files(job: Job, files: Checkpoint) -> str:
    if not job.spec.HasField("script"):
        return "it offers the files of a script, and the job is none"
    return _why_not_checkpoint(job, files)


def _why_not_exited(job: Job, said: ScriptExit) -> str:
    if not job.spec.HasField("script"):
        return "it tells how a script ended, and the job is none"
    if not said.status or not -128 <= said.status <= 255:
        return f"it says that a script failed with status {said.status}"
    if len(said.last_lines) > SCRIPT_LINES_CHARACTERS:
        return f"the last lines of its script have more than {SCRIPT_LINES_CHARACTERS} characters"
    return ""


def _why_not_measurements(job: Job, said: WorkerMeasured) -> str:
    lengths = (len(said.links), len(said.codecs), len(said.layers))
    most = (len(job.workers), MOST_CODECS, MOST_LAYERS)
    if not 1 <= said.generation <= job.generation:
        return f"it measured in generation {said.generation} of {job.generation}"
    if any(length > limit for length, limit in zip(lengths, most, strict=True)):
        return "it measured {} links, {} codecs and {} layers, more than there are".format(*lengths)
    for link in said.links:
        if not link.sent_bits_per_s or not link.received_bits_per_s:
            return f"it measured a way to rank {link.rank} that carries nothing"
        rates = {"sent_bits_per_s": link.sent_bits_per_s, "received_bits_per_s": link.received_bits_per_s}
        if reason := _why_not_measured(delay_s=link.delay_s, message_s=link.message_s, **rates):
            return reason
    if reason := _why_not_measured(together_bits_per_s=said.together_bits_per_s):
        return reason
    for codec in said.codecs:
        if reason := _why_not_measured(encode_s=codec.encode_s, decode_s=codec.decode_s):
            return reason
    for layer in said.layers:
        if layer.parameters > MAX_PARAMETERS:
            return f"it measured a layer of {layer.parameters} parameters, over {MAX_PARAMETERS}"
        if reason := _why_not_measured(forward_s=layer.forward_s, backward_s=layer.backward_s):
            return reason
    return ""


def _why_not_measured(**figures: float) -> str:
    for name, value in figures.items():
        if value and not MIN_FIGURE <= value <= MAX_FIGURE:
            return f"its {name} is {value}, but must be 0, or from {MIN_FIGURE:g} to {MAX_FIGURE:g}"
    return ""
