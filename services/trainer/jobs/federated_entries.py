"""What a job's record has of federated rounds: shards, beliefs, and the ledger of updates. Pure functions.

The workers tell with each round what has counted of each client since the job began: they keep that with the
parameters, so it goes back where these do. The ledger is exact when the rounds follow each other without a
gap, and their samples add up to those of the clients' updates that counted.
"""

from collections.abc import Sequence
from dataclasses import replace

from peerloom.kit.sync_auto import AutoSync
from peerloom.kit.sync_method import SyncMethod
from peerloom.services.trainer.jobs.ledger_entries import REFUSED, stretch_of, why_not_push, why_not_reason
from peerloom.v1.trainer_pb2 import FederatedRound, Job, JobSpec, Ledger, StepProgress


def with_shards(asked: SyncMethod | AutoSync, spec: JobSpec) -> SyncMethod | AutoSync:
    """The same, and where it is federated with a number of shards: as many as workers are wanted."""
    if isinstance(asked, AutoSync) or asked.federated is None or asked.federated.shards:
        return asked
    shards = spec.max_workers if spec.HasField("max_workers") else spec.request_budget
    return replace(asked, federated=replace(asked.federated, shards=shards))


def beliefs_in(job: Job, node_ids: Sequence[str]) -> list[float]:
    """The belief in each node when it was chosen; 0 for one that nobody chose."""
    found = {answer.node.node_id: answer.node.belief for answer in job.answers}
    return [found.get(node_id, 0.0) for node_id in node_ids]


def why_not_round(job: Job, step: StepProgress) -> str:
    """Why this can't be the federated round that follows those of the job."""
    told, before = step.federated, _end(job.ledger)
    if step.epoch != step.step:
        return f"it reports round {step.step} as epoch {step.epoch}"
    counted = sum(push.samples for push in told.pushes if push.verdict != REFUSED)
    if counted != step.samples or not counted:
        return f"it reports a round of {step.samples} samples, and its updates that count have {counted}"
    if before is not None and step.first_sample != before:
        return f"it reports a round after {step.first_sample} samples, but {before} had counted"
    if (whole := sum(each.samples for each in told.clients)) != step.first_sample + counted:
        return f"it reports clients with {whole} samples, after {step.first_sample} and {counted} more"
    return _why_not_told(job, told)


def enter_round(ledger: Ledger, step: StepProgress) -> None:
    """Enters a committed round, a stretch of its own: positions are samples that counted since the start."""
    if ledger.stretches and _end(ledger) is None:
        ledger.stretches[-1].end_sample = step.first_sample
    ledger.stretches.append(stretch_of(step, 1))
    del ledger.clients[:]
    ledger.clients.extend(step.federated.clients)


def forget_rounds(ledger: Ledger, step: int) -> None:
    """Takes out the rounds after `step`, which were lost with all who had them."""
    kept = [stretch for stretch in ledger.stretches if stretch.first_step <= step]
    before = ledger.stretches[-1].end_sample if ledger.stretches else 0
    if kept and kept[-1].last_step > step:
        # Of rounds that were put together nobody knows where one ends: the next round tells.
        kept[-1].last_step, kept[-1].end_sample = step, kept[-1].first_sample
    del ledger.stretches[len(kept) :]
    del ledger.clients[:]
    ledger.discarded_samples += before - (ledger.stretches[-1].end_sample if kept else 0)


def judge_rounds(ledger: Ledger, rounds: int | None = None) -> tuple[bool, str]:
    """Whether each update that counted did so once, and in words; `rounds` of a job that has succeeded."""
    step = samples = 0
    for stretch in ledger.stretches:
        if stretch.first_step != step + 1:
            return False, f"after round {step} comes round {stretch.first_step}"
        if stretch.first_sample != samples:
            return False, f"after round {step} {samples} samples had counted, not {stretch.first_sample}"
        step, samples = stretch.last_step, stretch.end_sample
    if rounds is not None and step != rounds:
        return False, f"{step} of {rounds} rounds are there"
    counted = sum(client.samples for client in ledger.clients)
    if ledger.clients and counted != samples:
        return False, f"the rounds counted {samples} samples, and the clients' updates have {counted}"
    updates = sum(client.updates for client in ledger.clients)
    refused = sum(client.refused_updates for client in ledger.clients)
    words = f"exact: {step} rounds with {samples} samples of {updates} updates, each counted once"
    return True, words + (f"; {refused} refused" if refused else "")


def _end(ledger: Ledger) -> int | None:
    """Samples that have counted; None where only the next round can tell."""
    if not ledger.stretches:
        return 0
    newest = ledger.stretches[-1]
    return None if newest.end_sample == newest.first_sample else int(newest.end_sample)


def _why_not_told(job: Job, told: FederatedRound) -> str:
    most = 4 * max(1, len(job.workers))  # each may be refused some times, and begin anew
    if len(told.pushes) > most or len(told.clients) > most or len(told.drawn) > most:
        told_of = f"{len(told.pushes)} updates and {len(told.clients)} clients"
        return f"it tells of {told_of}, of {len(job.workers)} workers"
    found = (why_not_push(push, "an update") for push in told.pushes)
    return why_not_reason(told.reason) or next((why for why in found if why), "")
