"""What some days of work leave in the databases of a system whose nodes and services are known there.

By node and day there are sessions and facts, by day jobs, whose record and events are the messages that the
API shows. What retention takes away, by the services' own settings, isn't made.
"""

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any

import sqlalchemy as sa

from peerloom.services.registry import tables as registry
from peerloom.services.registry.config import RegistryConfig
from peerloom.services.selector import tables as selector
from peerloom.services.trainer import tables as trainer
from peerloom.services.trainer.config import TrainerConfig
from peerloom.v1 import trainer_pb2 as pb
from peerloom.v1.selector_pb2 import EVIDENCE_KIND_TRAINING, EVIDENCE_KIND_TRANSFER

DAY_S = 86_400.0
SESSIONS_A_DAY, FACTS_A_DAY = 2, 5  # of each node
JOBS_A_DAY, WORKERS, EVENTS_A_JOB = 100, 4, 100
_INTERRUPTED = 10  # one session of so many
_AT_ONCE = 5_000
Row = dict[str, Any]


def fill_registry(engine: sa.Engine, days: int, now_s: float) -> None:
    """Sessions, and events that say again what each node's last one said."""
    kept_days = min(days, int(RegistryConfig().retention_days))
    with engine.begin() as connection:
        nodes = list(connection.scalars(sa.select(registry.nodes.c.node_id)))
        _insert(connection, registry.sessions, _sessions(nodes, kept_days, now_s))
        newest = connection.execute(sa.select(registry.events).order_by(registry.events.c.sequence)).all()
        last = {row.node_id: dict(row._mapping) for row in newest}
        count = min(RegistryConfig().event_limit, days * SESSIONS_A_DAY * len(nodes)) - len(newest)
        _insert(connection, registry.events, _events(list(last.values()), newest[-1].sequence, count))


def fill_selector(engine: sa.Engine, days: int, now_s: float) -> None:
    """Facts, and an update of the node's belief for each."""
    with engine.begin() as connection:
        known = connection.execute(sa.select(selector.beliefs.c.node_id, selector.beliefs.c.updates)).all()
        updates = {row.node_id: row.updates for row in known}
        _insert(connection, selector.evidence, _facts(updates, days, now_s))
        _insert(connection, selector.history, _history(updates, days, now_s))
        more = {"updates": selector.beliefs.c.updates + days * FACTS_A_DAY}
        connection.execute(sa.update(selector.beliefs).values(more))


def fill_trainer(engine: sa.Engine, days: int, now_s: float, cut_off: pb.JobSpec) -> tuple[str, str]:
    """Jobs that have succeeded, with a model each, and one by that spec which was cut off.

    The newest ones have their events. The ids of the last one that succeeded, and of the one that didn't.
    """
    count = days * JOBS_A_DAY
    jobs = (_job(number, now_s - (count - number) * DAY_S / JOBS_A_DAY) for number in range(count))
    with_events = range(max(0, count - TrainerConfig().event_logs_kept), count)
    with engine.begin() as connection:
        _insert(connection, trainer.jobs, (_job_row(n, job) for n, job in enumerate(jobs)))
        _insert(connection, trainer.jobs, [_job_row(count, _cut_off_job(count, cut_off, now_s))])
        versions = ({"name": "digits", "version": n + 1, "job_id": _job_id(n)} for n in range(count))
        _insert(connection, trainer.model_versions, versions)
        _insert(connection, trainer.job_events, (row for n in with_events for row in _job_events(n)))
    return _job_id(count - 1), _job_id(count)


def _insert(connection: sa.Connection, table: sa.Table, rows: Iterable[Row]) -> None:
    left = iter(rows)
    while some := list(islice(left, _AT_ONCE)):
        connection.execute(sa.insert(table), some)


def _sessions(nodes: list[str], days: int, now_s: float) -> Iterator[Row]:
    long_s = DAY_S / SESSIONS_A_DAY
    for turn in range(days * SESSIONS_A_DAY):
        begin_s = now_s - (days * SESSIONS_A_DAY - turn) * long_s
        for number, node_id in enumerate(nodes):
            is_interrupted = (turn + number) % _INTERRUPTED == 0
            yield {
                "session_id": f"session-{turn:06}{number:06}",
                "node_id": node_id,
                "request_id": f"request-{turn:06}",
                "incarnation": turn,
                "start_s": begin_s,
                "end_s": begin_s + 0.9 * long_s,
                "online_s": 0.9 * long_s,
                "interrupted": is_interrupted,
                "end_reason": "silent for 15 s" if is_interrupted else "the node was stopped",
            }


def _events(last: list[Row], sequence: int, count: int) -> Iterator[Row]:
    for number in range(max(0, count)):
        yield {**last[number % len(last)], "sequence": sequence + 1 + number}


def _facts(updates: dict[str, int], days: int, now_s: float) -> Iterator[Row]:
    for fact, (node_id, before) in _told(updates, days):
        is_transfer = fact % 2 == 0
        yield {
            "evidence_id": _evidence_id(node_id, before + 1 + fact),
            "node_id": node_id,
            "kind": EVIDENCE_KIND_TRANSFER if is_transfer else EVIDENCE_KIND_TRAINING,
            "time_s": _time_s(fact, days, now_s),
            "delay_s": 0.02 if is_transfer else 0.0,
            "online_s": 0.0,
            "transfer_bytes": 10_000_000 if is_transfer else 0,
            "job_id": _job_id(fact * JOBS_A_DAY // FACTS_A_DAY),
            "detail": "",
            "speed_gflops": 0.0 if is_transfer else 30.0,
            "slots": 1,
            "reporter": "spiffe://peerloom/trainer",
        }


def _history(updates: dict[str, int], days: int, now_s: float) -> Iterator[Row]:
    terms = [column.name for column in selector.history.c]
    numbers = dict.fromkeys(terms[terms.index("belief") :], 1.0)
    whole = {"transmissions", "trainings", "interruptions", "unfinished", "lies"}
    for fact, (node_id, before) in _told(updates, days):
        number = before + 1 + fact
        yield {
            **numbers,
            **dict.fromkeys(whole, number),
            "node_id": node_id,
            "number": number,
            "evidence_id": _evidence_id(node_id, number),
            "update_time_s": _time_s(fact, days, now_s),
        }


def _told(updates: dict[str, int], days: int) -> Iterator[tuple[int, tuple[str, int]]]:
    """Each fact of each node in the order of time, with the node and its updates before."""
    for fact in range(days * FACTS_A_DAY):
        for node in updates.items():
            yield fact, node


def _time_s(fact: int, days: int, now_s: float) -> float:
    return now_s - (days * FACTS_A_DAY - fact) * DAY_S / FACTS_A_DAY


def _evidence_id(node_id: str, number: int) -> str:
    return f"old-{node_id}-{number}"


def _job_id(number: int) -> str:
    return f"job-{number:012x}"


def _job(number: int, end_s: float) -> pb.Job:
    workers = [
        pb.Worker(
            worker_id=f"worker-{number:08x}{rank:04x}", node_id=f"node-{rank:012x}", rank=rank, ended=True
        )
        for rank in range(WORKERS)
    ]
    job = pb.Job(
        job_id=_job_id(number),
        spec=pb.JobSpec(task="digits", epochs=4, batch_size=32, request_budget=WORKERS, name="digits"),
        state=pb.JOB_STATE_SUCCEEDED,
        state_reason="the model is trained",
        answers=[pb.NodeAnswer(accepted_slots=1, reason="1 of 1 slot free.") for _ in workers],
        workers=workers,
        generation=1,
        progress=pb.JobProgress(step=EVENTS_A_JOB, total_steps=EVENTS_A_JOB, epoch=4, total_epochs=4),
    )
    job.result.model.digest = _digest(number)
    job.result.model.size_bytes = 30_000
    job.submit_time.FromSeconds(int(end_s - 60))
    job.end_time.FromSeconds(int(end_s))
    return job


def _cut_off_job(number: int, spec: pb.JobSpec, end_s: float) -> pb.Job:
    """It has a checkpoint, from which it can be resumed."""
    job = pb.Job(
        job_id=_job_id(number),
        spec=spec,
        state=pb.JOB_STATE_CANCELLED,
        state_reason="its user cancelled it",
        progress=pb.JobProgress(step=EVENTS_A_JOB // 2, total_steps=EVENTS_A_JOB, epoch=2, total_epochs=4),
    )
    job.checkpoint.step = EVENTS_A_JOB // 2
    job.checkpoint.artifact.digest = _digest(number)
    job.checkpoint.artifact.size_bytes = 30_000
    job.submit_time.FromSeconds(int(end_s - 60))
    job.end_time.FromSeconds(int(end_s))
    return job


def _digest(number: int) -> str:
    return f"{number:064x}"


def _job_row(number: int, job: pb.Job) -> Row:
    return {
        "job_id": job.job_id,
        "request_id": f"request-{number:012}",
        "state": int(job.state),
        "model_digest": job.result.model.digest,
        "last_sequence": EVENTS_A_JOB,
        "record": job.SerializeToString(),
    }


def _job_events(number: int) -> Iterator[Row]:
    for sequence in range(1, EVENTS_A_JOB + 1):
        event = pb.WatchJobResponse(sequence=sequence, job_id=_job_id(number))
        if sequence < EVENTS_A_JOB:
            event.step.CopyFrom(pb.StepProgress(step=sequence, epoch=1, loss=0.5, samples=32, step_s=0.02))
        else:
            event.state_change.CopyFrom(pb.StateChange(state=pb.JOB_STATE_SUCCEEDED))
        yield {"job_id": _job_id(number), "sequence": sequence, "event": event.SerializeToString()}
