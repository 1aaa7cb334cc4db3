"""Events of a job."""

from peerloom.client.conversions.audits import accusation_of, dismissal_of
from peerloom.client.conversions.evaluations import evaluation_of
from peerloom.client.conversions.federated import round_of
from peerloom.client.conversions.jobs import answer_of, backend_of, state_of, worker_of
from peerloom.client.conversions.plans import predicted_of
from peerloom.client.conversions.stale import stale_of
from peerloom.client.conversions.words import time_of
from peerloom.client.types import (
    AuditsOff,
    EpochFinished,
    GenerationFormed,
    GradientsRefused,
    JobEvent,
    LiarDismissed,
    ModelEvaluated,
    NodeAccused,
    NodeAnswered,
    PlanChosen,
    StateChanged,
    StepCommitted,
    SyncChanged,
    WorkerLost,
)
from peerloom.v1.trainer_pb2 import WatchJobResponse


def event_of(message: WatchJobResponse) -> JobEvent | None:
    """An event as a value; None for a kind that is newer than we are."""
    at = (message.sequence, message.job_id, time_of(message, "time"))
    match message.WhichOneof("event"):
        case "state_change":
            change = message.state_change
            return StateChanged(*at, state_of(change.state), change.reason)
        case "answer":
            return NodeAnswered(*at, answer_of(message.answer))
        case "generation_formed":
            formed = message.generation_formed
            workers = tuple(worker_of(each) for each in formed.workers)
            backend = backend_of(formed.backend)
            return GenerationFormed(*at, formed.generation, workers, backend, formed.first_step, formed.sync)
        case "step":
            return _step(message)
        case "epoch":
            done = message.epoch
            return EpochFinished(*at, done.epoch, done.metric_name, done.metric, done.loss, done.test_samples)
        case "worker_lost":
            lost = message.worker_lost
            return WorkerLost(*at, worker_of(lost.worker), lost.reason)
        case "accusation":
            return NodeAccused(*at, accusation_of(message.accusation))
        case "liar_dismissed":
            return LiarDismissed(*at, dismissal_of(message.liar_dismissed))
        case "audits_off":
            return AuditsOff(*at, message.audits_off.node_name, message.audits_off.reason)
        case "gradients_refused":
            refused = message.gradients_refused
            return GradientsRefused(
                *at, refused.generation, refused.step, refused.node_name, refused.worker_id
            )
        case "sync_changed":
            one = message.sync_changed
            return SyncChanged(*at, one.generation, one.method, one.former, one.reason)
        case "plan_chosen":
            taken = message.plan_chosen
            predicted = predicted_of(taken.predicted) if taken.HasField("predicted") else None
            return PlanChosen(*at, taken.generation, taken.plan, taken.former, taken.reason, predicted)
        case "evaluation":
            return ModelEvaluated(*at, evaluation_of(message.evaluation))
    return None


def _step(message: WatchJobResponse) -> StepCommitted:
    step = message.step
    return StepCommitted(
        sequence=message.sequence,
        job_id=message.job_id,
        time=time_of(message, "time"),
        step=step.step,
        total_steps=step.total_steps or None,
        epoch=step.epoch,
        loss=step.loss,
        samples=step.samples,
        samples_per_s=step.samples_per_s,
        step_s=step.step_s,
        compute_s=step.compute_s,
        communication_s=step.communication_s,
        communicated_bytes=step.communicated_bytes,
        metrics=dict(step.metrics),
        batch_shares=tuple(step.batch_shares),
        federated=round_of(step.federated) if step.HasField("federated") else None,
        stale=stale_of(step.stale) if step.HasField("stale") else None,
        generation=step.generation,
    )
