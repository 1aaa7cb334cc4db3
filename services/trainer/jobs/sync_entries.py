"""How a job is synchronised, as its record has it: pure functions that write into the job."""

from collections.abc import Mapping
from dataclasses import dataclass

from peerloom.kit.limits import cut_reason
from peerloom.kit.robust_rules import OFF
from peerloom.kit.sync_auto import first_method, is_auto
from peerloom.kit.sync_grammar import parse_sync
from peerloom.kit.sync_method import SyncMethod
from peerloom.kit.sync_model.prediction import StepPrediction
from peerloom.services.trainer.generations.sync_decisions import MeasuredStep, SyncVerdict
from peerloom.v1.trainer_pb2 import Job, JobSync, SyncChanged, SyncPrediction, TriedSync

NOT_YET = "until the links and layers are measured"


@dataclass(frozen=True)
class JudgedSync:
    """What is thought of the method in use, whose steps were `measured`, beside those that were `tried`.

    `predicted` is what was expected of it before its own steps. None: it isn't known.
    """

    verdict: SyncVerdict
    measured: MeasuredStep | None
    tried: Mapping[SyncMethod, float]
    predicted: StepPrediction | None = None


def in_use(job: Job) -> str:
    """The method that the newest generation has, or the first one will; a script's is empty."""
    if not is_auto(job.spec.sync):
        return job.spec.sync
    return job.sync_in_use.method or str(first_method(job.spec.sync))


def task_loaded(job: Job, bears_rounds: bool) -> None:
    """A worker has loaded the task, and says whether that can be trained in rounds."""
    if not is_auto(job.spec.sync):
        return
    known = job.sync_in_use
    known.bears_rounds = bears_rounds and (known.bears_rounds or not known.HasField("bears_rounds"))
    if not known.method:
        known.method = str(first_method(job.spec.sync, bears_rounds=bears_rounds))
        known.reason = NOT_YET


def forget_task(job: Job) -> None:
    """Whether it can be trained in rounds has to be said again: another plan divides it, or may."""
    if is_auto(job.spec.sync):
        job.sync_in_use.ClearField("bears_rounds")


def steps_at_once(job: Job) -> int:
    """Steps that the method in use commits together: one, or those of a round of local steps."""
    return parse_sync("sync", in_use(job), job.spec.robust or OFF).batches


def for_workers(job: Job) -> str:
    """The same, but nodes have their ids in place of their names, as workers know them."""
    method = in_use(job)
    parsed = parse_sync("sync", method)
    if not parsed.named_nodes:
        return method
    return str(parsed.renamed({worker.node_name: worker.node_id for worker in job.workers}))


def take(job: Job, method: str, reason: str) -> SyncChanged | None:
    """The newest generation has this method (empty: the one in use); returns what is told of a change."""
    if not is_auto(job.spec.sync):
        return None
    former = in_use(job)
    if not method or method == former:
        job.sync_in_use.method, job.sync_in_use.reason = former, job.sync_in_use.reason or NOT_YET
        return None
    reason = cut_reason(reason)
    before = job.sync_in_use
    tried = [one for one in before.tried if one.method not in (method, former)]
    if before.measured_step_s:
        tried.append(TriedSync(method=former, step_s=before.measured_step_s))
    taken = JobSync(method=method, reason=reason, changes=before.changes + 1, tried=tried)
    before.CopyFrom(_of_task(taken, before))
    return SyncChanged(generation=job.generation, method=method, former=former, reason=reason)


def judge(job: Job, judged: JudgedSync) -> bool:
    """The method in use was looked at; False: nothing is new."""
    verdict, measured, predicted, tried = judged.verdict, judged.measured, judged.predicted, judged.tried
    reason = (
        f"{verdict.method} is to take its place: {verdict.reason}" if verdict.is_change else verdict.reason
    )
    before = job.sync_in_use
    found = JobSync(method=in_use(job), reason=cut_reason(reason), changes=before.changes)
    found.tried.extend(TriedSync(method=str(method), step_s=step_s) for method, step_s in tried.items())
    if predicted is not None:
        found.predicted.CopyFrom(
            SyncPrediction(
                step_s=predicted.step_s,
                compute_s=predicted.compute_s,
                exposed_s=predicted.exposed_s,
                compression_s=predicted.compression_s,
            )
        )
    if measured is not None:
        found.measured_step_s, found.measured_compute_s = measured.step_s, measured.compute_s
        found.measured_communication_s = measured.communication_s
    if verdict.runner_up is not None:
        method, found.runner_up_step_s = verdict.runner_up
        found.runner_up = str(method)
    is_news = _of_task(found, before) != before
    before.CopyFrom(found)
    return is_news


def _of_task(found: JobSync, before: JobSync) -> JobSync:
    """`found`, with what is known of the task."""
    if before.HasField("bears_rounds"):
        found.bears_rounds = before.bears_rounds
    return found
