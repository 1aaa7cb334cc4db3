"""Jobs, their results, models and lines of output."""

from contextlib import suppress
from typing import cast

from peerloom.client.conversions.audits import audits_of
from peerloom.client.conversions.evaluations import evaluation_of
from peerloom.client.conversions.ledgers import ledger_of
from peerloom.client.conversions.plans import plan_of, shadow_of, stage_of
from peerloom.client.conversions.syncs import sync_of
from peerloom.client.conversions.words import given, time_of, word_of
from peerloom.client.types import (
    FINAL_STATES,
    Artifact,
    Backend,
    Job,
    JobResult,
    JobSpec,
    JobState,
    LinkTraffic,
    LogLine,
    Model,
    NetworkTraffic,
    NodeAnswer,
    NodeChoice,
    NotChosen,
    Progress,
    RobustRule,
    ScriptRun,
    Worker,
)
from peerloom.kit.elastic_scripts import SCRIPT_TASK, script_and_arguments
from peerloom.kit.raw_input import raw_input_in
from peerloom.kit.script_output import script_line
from peerloom.kit.tracing import trace_id_in
from peerloom.v1 import artifact_pb2, trainer_pb2


def job_of(message: trainer_pb2.Job) -> Job:
    """A Job message as a value."""
    state, is_script = state_of(message.state), message.spec.HasField("script")
    return Job(
        id=message.job_id,
        spec=spec_of(message.spec),
        state=state,
        reason=message.state_reason,
        answers=tuple(answer_of(each) for each in message.answers),
        workers=tuple(worker_of(each) for each in message.workers),
        generation=message.generation,
        backend=backend_of(message.backend),
        progress=_progress(message.progress) if message.HasField("progress") else None,
        result=_result(message, state) if state in FINAL_STATES else None,
        submit_time=time_of(message, "submit_time"),
        first_step_time=time_of(message, "first_step_time"),
        end_time=time_of(message, "end_time"),
        checkpoint_step=message.checkpoint.step if message.HasField("checkpoint") else None,
        checkpoint="" if is_script or state == "succeeded" else message.checkpoint.artifact.digest,
        ledger=ledger_of(message.ledger) if message.ledger.verdict and message.ledger.stretches else None,
        traffic=_traffic(message.traffic) if message.HasField("traffic") else None,
        audits=audits_of(message.audits) if message.HasField("audits") else None,
        evaluation=evaluation_of(message.evaluation) if message.HasField("evaluation") else None,
        choice=_choice(message.choice) if message.HasField("choice") else None,
        files=message.checkpoint.artifact.digest if is_script else "",
        script_run=_script_run(message.script_run) if message.HasField("script_run") else None,
        sync=sync_of(message.sync_in_use) if message.HasField("sync_in_use") else None,
        plan=plan_of(message.plan_in_use) if message.HasField("plan_in_use") else None,
        trace_id=trace_id_in(message.traceparent),
        begun_anew=message.begun_anew,
    )


def state_of(number: "trainer_pb2.JobState.ValueType") -> JobState:
    """A job's state as a word."""
    state: JobState = word_of(trainer_pb2.JobState, number)
    return state


def backend_of(number: "trainer_pb2.Backend.ValueType") -> Backend | None:
    """A collective library as a word, None when none was chosen yet."""
    word = word_of(trainer_pb2.Backend, number)
    return None if word == "unknown" else word


def answer_of(message: trainer_pb2.NodeAnswer) -> NodeAnswer:
    """A NodeAnswer message as a value."""
    node = message.node
    return NodeAnswer(
        node_id=node.node_id,
        name=node.name,
        address=node.address,
        slots=node.slots,
        belief=node.belief,
        chosen_because=node.reason,
        accepted_slots=message.accepted_slots,
        reason=message.reason,
        answer_s=message.answer_s,
    )


def worker_of(message: trainer_pb2.Worker) -> Worker:
    """A Worker message as a value."""
    return Worker(
        id=message.worker_id,
        node_id=message.node_id,
        node_name=message.node_name,
        rank=message.rank,
        ended=message.ended,
        end_reason=message.end_reason,
        stage=stage_of(message.stage) if message.HasField("stage") else None,
        shadow=shadow_of(message.shadow) if message.HasField("shadow") else None,
        generation=message.generation,
    )


def model_of(message: trainer_pb2.Model) -> Model:
    """A Model message as a value."""
    return Model(
        digest=message.artifact.digest,
        size_bytes=message.artifact.size_bytes,
        name=message.name,
        version=message.version,
        job_id=message.job_id,
        task=message.task,
        metric=message.metric if message.metric_name else None,
        metric_name=message.metric_name or None,
        create_time=time_of(message, "create_time"),
        initial_model=message.initial_model_digest,
        raw_input=raw_input_in(message),
    )


def spec_of(message: trainer_pb2.JobSpec) -> JobSpec:
    """A JobSpec message as a value."""
    needs = message.requirements
    task, arguments, script_arguments = _task_of(message)
    return JobSpec(
        task=task,
        arguments=arguments,
        script_arguments=script_arguments,
        requests=given(message, "request_budget"),
        epochs=given(message, "epochs"),
        batch_size=given(message, "batch_size"),
        learning_rate=given(message, "learning_rate"),
        policy=message.policy,
        seed=message.seed,
        min_workers=given(message, "min_workers"),
        max_workers=given(message, "max_workers"),
        backend=backend_of(message.backend) or "auto",
        name=message.name,
        initial_model=message.initial_model_digest,
        min_slots=needs.min_slots,
        accelerator=needs.accelerator_kind,
        labels=dict(needs.labels),
        code=message.code_digest,
        equal_shares=message.equal_shares,
        robust=cast(RobustRule, message.robust or "off"),
        sync=message.sync,
        plan=message.plan,
    )


def _task_of(message: trainer_pb2.JobSpec) -> tuple[str, dict[str, str], tuple[str, ...]]:
    """The task with its arguments, or a script with its own, as they were handed in."""
    arguments = dict(message.task_arguments)
    if message.task == SCRIPT_TASK:
        with suppress(KeyError, ValueError):  # who made the spec by hand sees it as it is
            script, own = script_and_arguments(arguments)
            return script, {}, tuple(own)
    return message.task, arguments, tuple(message.script.arguments)


def log_line_of(message: trainer_pb2.GetJobLogsResponse) -> LogLine:
    """A line of output as a value."""
    found = script_line(message.line)
    if found is None:
        return LogLine(message.node_name, message.worker_id, message.line)
    return LogLine(message.node_name, message.worker_id, found.text, found.rank, found.stream)


def _script_run(message: trainer_pb2.ScriptRun) -> ScriptRun:
    failed = message.exit
    return ScriptRun(message.failures, failed.rank, failed.node_name, failed.status, failed.last_lines)


def _exit_status(message: trainer_pb2.Job, state: JobState) -> int | None:
    if not message.spec.HasField("script"):
        return None
    if state == "succeeded":
        return 0
    return message.script_run.exit.status if state == "failed" and message.HasField("script_run") else None


def _artifact(message: artifact_pb2.Artifact) -> Artifact:
    return Artifact(message.digest, message.size_bytes, message.name)


def _traffic(message: trainer_pb2.NetworkTraffic) -> NetworkTraffic:
    return NetworkTraffic(
        backend=message.backend,
        medium=message.medium,
        seconds=message.seconds,
        lag_worst_s=given(message, "lag_worst_s"),
        lag_bound_s=message.lag_bound_s,
        links=tuple(
            LinkTraffic(
                host=each.host,
                node=each.node,
                sent_bytes=each.sent_bytes,
                sent_packets=each.sent_packets,
                received_bytes=each.received_bytes,
                received_packets=each.received_packets,
                dropped_packets=each.dropped_packets,
            )
            for each in message.links
        ),
    )


def _progress(message: trainer_pb2.JobProgress) -> Progress:
    begun = message.step > 0
    return Progress(
        step=message.step,
        total_steps=message.total_steps or None,
        epoch=message.epoch,
        total_epochs=message.total_epochs or None,
        loss=message.loss if begun else None,
        samples_per_s=message.samples_per_s if begun else None,
        metric=message.metric if message.metric_name else None,
        metric_name=message.metric_name or None,
        metrics=dict(message.metrics),
    )


def _choice(message: trainer_pb2.NodeChoice) -> NodeChoice:
    outranked = [message.outranked] if message.HasField("outranked") else []
    return NodeChoice(
        policy=message.policy,
        requests=message.request_budget,
        chosen=message.chosen,
        candidates=message.candidates,
        passed_over=tuple(
            NotChosen(one.reason, one.count, tuple(one.examples)) for one in [*outranked, *message.exclusions]
        ),
    )


def _result(message: trainer_pb2.Job, state: JobState) -> JobResult:
    left = message.result if message.HasField("result") else None
    metric_name = message.progress.metric_name
    return JobResult(
        job_id=message.job_id,
        state=state,
        reason=message.state_reason,
        model=_artifact(left.model) if left and left.HasField("model") else None,
        model_path=(left.model_path or None) if left else None,
        model_nodes=tuple(left.model_nodes) if left else (),
        metric=message.progress.metric if metric_name else None,
        metric_name=metric_name or None,
        training_s=left.training_s if left else None,
        samples=left.samples if left else None,
        samples_per_s=left.samples_per_s if left else None,
        compute_s_per_step=left.compute_s_per_step if left else None,
        communication_s_per_step=left.communication_s_per_step if left else None,
        communicated_bytes=left.communicated_bytes if left else None,
        exit_status=_exit_status(message, state),
    )
