"""Processes die in the middle of a job, and the job goes on: workers, agents, coordinators.

Each fault is set off by a committed step, never by a time, so it falls inside the training.
"""

import json
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from paced_jobs import let_nodes_import_paced_task
from worker_processes import workers_of

from peerloom import Client, Embedded, JobHandle
from peerloom.client.types import (
    EpochFinished,
    GenerationFormed,
    JobEvent,
    Session,
    StateChanged,
    StepCommitted,
    WorkerLost,
)
from peerloom.errors import UnavailableError

JOB_LIMIT_S = 120.0
EPOCHS = 10
LONG = 12  # at a pace that leaves somebody time to come and join
STRUCK_AT = 20
pytestmark = pytest.mark.timeout(240)


@pytest.fixture
def system(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Embedded]:
    """One for each test: what becomes of a worker is evidence, by which the next job's nodes are chosen."""
    let_nodes_import_paced_task(monkeypatch, tmp_path, 0.02)
    with Embedded(tmp_path, (2, 1)) as started:
        yield started


@pytest.fixture
def client(system: Embedded) -> Iterator[Client]:
    with Client(system.address) as opened:
        yield opened


def watch_with_fault(job: JobHandle, at_step: int, fault: "object") -> list[JobEvent]:
    """All events of the job; calls `fault` when the step is committed."""
    events: list[JobEvent] = []
    for event in job.watch():
        events.append(event)
        if isinstance(event, StepCommitted) and event.step == at_step:
            fault()  # type: ignore[operator]  # a callable without arguments
    return events


def check_complete(job: JobHandle, events: list[JobEvent], epochs: int = EPOCHS) -> None:
    """Every step is there once and in order, every epoch was measured, and the model is good."""
    result = job.result(JOB_LIMIT_S)
    assert result.succeeded, result.reason
    assert [e.sequence for e in events] == list(range(1, len(events) + 1))
    steps = [event for event in events if isinstance(event, StepCommitted)]
    assert [step.step for step in steps] == list(range(1, epochs * 45 + 1))
    assert sum(step.samples for step in steps) == epochs * 1437
    assert [e.epoch for e in events if isinstance(e, EpochFinished)] == list(range(1, epochs + 1))
    assert (result.metric or 0) > 0.95


def test_a_killed_worker_costs_no_step_and_is_replaced(system: Embedded, client: Client) -> None:
    """The survivors go on, then its node gives another slot.

    The selector is held until the survivors go on: on a busy machine a replacement may else be sooner.
    """
    selector = psutil.Process(system.pids["selector"])

    def strike() -> None:
        selector.suspend()
        workers_of(system.pids["node-1"])[0].kill()

    job = client.train("paced:Paced", requests=2, epochs=LONG)
    events: list[JobEvent] = []
    try:
        for event in job.watch():
            events.append(event)
            if isinstance(event, StepCommitted) and event.step == STRUCK_AT:
                strike()
            if isinstance(event, GenerationFormed) and len(event.workers) == 2:
                selector.resume()
    finally:
        selector.resume()
    check_complete(job, events, LONG)
    [lost] = [event.worker.id for event in events if isinstance(event, WorkerLost)]
    formed = [event for event in events if isinstance(event, GenerationFormed)]
    check_sizes(system, formed, [])
    first = next(event for event in formed if lost not in {each.id for each in event.workers})
    assert first.first_step >= STRUCK_AT


def test_a_killed_worker_costs_no_step_where_gradients_are_encoded(system: Embedded, client: Client) -> None:
    """The survivors go on with their residuals, whose parts have other owners then; the model is as good."""
    job = client.train("digits", requests=2, epochs=EPOCHS, sync="topology=direct,codec=int8")
    events = watch_with_fault(job, STRUCK_AT, lambda: workers_of(system.pids["node-1"])[0].kill())
    check_complete(job, events)
    spec, formed = job.status().spec, [event for event in events if isinstance(event, GenerationFormed)]
    assert spec.sync == "schedule=wfbp,topology=direct,codec=int8"
    assert {event.sync for event in formed} == {spec.sync}
    assert len(formed) >= 2
    # 6,090 values in three parts, each with 8 scales of 4 bytes, sent to two others twice; the loss has 4.
    first = next(event for event in events if isinstance(event, StepCommitted))
    assert (len(formed[0].workers), first.communicated_bytes) == (3, 2 * 2 * (2030 + 8 * 4) + 2 * 4)
    ledger = job.status().ledger
    assert ledger is not None
    assert (ledger.is_exact, ledger.discarded_samples) == (True, 0)


def check_sizes(system: Embedded, formed: list[GenerationFormed], silent: list[str]) -> None:
    """All three, then two, then three again, unless more than `silent` were starved for over a second.

    Whom a busy machine lets say nothing for so long is left behind, as it should be, and joins again.
    """
    sizes = [len(event.workers) for event in formed]
    told = fell_silent(system)
    assert set(silent) <= set(told)
    if told == silent:
        assert sizes == [3, 2, 3]
    assert (sizes[0], min(sizes) < 3, sizes[-1]) == (3, True, 3)


def fell_silent(system: Embedded) -> list[str]:
    """The workers of whom the trainer had no sign of life, as its log tells."""
    lines = [json.loads(line) for line in system.folder.log_path("trainer").read_text().splitlines()]
    return [worker for line in lines if line["event"] == "workers_fell_silent" for worker in line["workers"]]


def test_coordinators_die_one_after_the_other_and_no_step_is_lost(system: Embedded, client: Client) -> None:
    """The workers go on by themselves, and the watch resumes with no gap and no repeat."""
    job = client.train("digits", requests=2, epochs=EPOCHS)
    dies_at = {name: STRUCK_AT + 100 * i for i, name in enumerate(("registry", "selector", "trainer"))}
    events: list[JobEvent] = []
    for event in job.watch():
        events.append(event)
        for name, step in dies_at.items():
            if isinstance(event, StepCommitted) and event.step == step:
                psutil.Process(system.pids[name]).kill()
    check_complete(job, events)
    assert not [event for event in events if isinstance(event, WorkerLost)]
    assert interruptions(client) == []


def interruptions(client: Client) -> list[Session]:
    """Asks until the registry is back."""
    pause, deadline_s = threading.Event(), time.monotonic() + JOB_LIMIT_S
    while True:
        try:
            return client.interruptions()
        except UnavailableError:
            assert time.monotonic() < deadline_s
            pause.wait(0.1)


def test_a_job_that_loses_all_its_workers_ends_with_the_reason(system: Embedded, client: Client) -> None:
    def kill() -> None:
        for node in ("node-1", "node-2"):
            for process in workers_of(system.pids[node]):
                process.kill()

    job = client.train("digits", requests=2, epochs=EPOCHS)
    watch_with_fault(job, STRUCK_AT, kill)
    result = job.result(JOB_LIMIT_S)
    assert result.state == "failed"
    assert "signal 9" in result.reason


def test_a_frozen_worker_is_left_behind_and_joins_again(system: Embedded, client: Client) -> None:
    """SIGSTOP inside the training: the others go on; SIGCONT: it takes their state and works again."""
    frozen: list[psutil.Process] = []

    def freeze() -> None:
        frozen.append(workers_of(system.pids["node-2"])[0])
        frozen[0].suspend()

    job = client.train("paced:Paced", requests=2, epochs=LONG)
    events: list[JobEvent] = []
    for event in job.watch():
        events.append(event)
        if isinstance(event, StepCommitted) and event.step == STRUCK_AT:
            freeze()
        if isinstance(event, GenerationFormed) and frozen and len(event.workers) == 2:
            frozen[0].resume()
    check_complete(job, events, LONG)
    formed = [event for event in events if isinstance(event, GenerationFormed)]
    [on_node_2] = [each.id for each in formed[0].workers if each.node_name == "node-2"]
    check_sizes(system, formed, [on_node_2])
    assert not [event for event in events if isinstance(event, WorkerLost)], "it was only slow"


def test_a_node_that_comes_later_joins_the_running_job(tmp_path: Path) -> None:
    """One worker of at most three trains; two slots become free, and join with its state."""
    with Embedded(tmp_path, (2, 1)) as system, Client(system.address) as client:
        other = client.train("digits", requests=2, epochs=100_000, max_workers=2)
        next(event for event in other.watch() if isinstance(event, StepCommitted))
        job = client.train("digits", requests=2, epochs=100_000, max_workers=3)
        sizes: list[int] = []
        steps: list[int] = []
        for event in job.watch():
            if isinstance(event, GenerationFormed):
                sizes.append(len(event.workers))
                assert event.first_step >= (steps[-1] if steps else 0)
            assert not isinstance(event, WorkerLost)
            if isinstance(event, StepCommitted):
                steps.append(event.step)
                if event.step == 50:
                    other.cancel()
                if sizes[-1] == 3 and len(steps) > 100:
                    break
        assert steps == list(range(1, len(steps) + 1))
        assert sizes[0] == 1
        assert job.cancel().state == "cancelled"


def test_an_agent_that_is_stopped_hands_over_and_is_not_blamed(system: Embedded, client: Client) -> None:
    """SIGTERM on the agent: its workers leave at a step boundary; no loss, no interruption."""
    job = client.train("digits", requests=2, epochs=EPOCHS)
    events = watch_with_fault(job, STRUCK_AT, lambda: psutil.Process(system.pids["node-1"]).terminate())
    check_complete(job, events)
    assert not [event for event in events if isinstance(event, WorkerLost)]
    assert client.interruptions() == []
    facts = [update.evidence for update in client.belief_history("node-1") if update.evidence]
    assert [fact.detail for fact in facts if fact.kind == "unfinished"] == []


def test_a_job_whose_workers_all_die_goes_on_from_its_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its state is kept on both nodes and in the trainer; fresh workers take it and finish the job.

    Three steps are a round, 15 an epoch; the state has the outer momentum.
    """
    monkeypatch.setenv("PEERLOOM_TRAINER_CHECKPOINT_INTERVAL_S", "0.3")
    with Embedded(tmp_path, (1, 1)) as system, Client(system.address) as client:
        rounds = "period=3,outer=nesterov:1.0:0.6,codec=int8"
        # At the task's own rate the outer momentum, which moves 2.5 times as far, makes it diverge.
        # Both have to be there: on a busy machine one may begin well before the other.
        job = client.train(
            "digits", requests=2, min_workers=2, epochs=EPOCHS, learning_rate=0.02, sync=rounds
        )
        restored = ""
        was_killed = False
        for event in job.watch():
            if isinstance(event, StepCommitted) and event.step >= 90 and not was_killed:
                was_killed = job.status().checkpoint_step is not None
                for node in ("node-1", "node-2") if was_killed else ():
                    for process in workers_of(system.pids[node]):
                        process.kill()
            if isinstance(event, StateChanged) and "from the checkpoint" in event.reason:
                restored = event.reason
        result = job.result(JOB_LIMIT_S)
        assert result.succeeded, result.reason
        assert "workers go on from the checkpoint of step" in restored
        assert (result.metric or 0) > 0.95
        found = job.status()
        assert found.progress is not None
        assert (found.progress.step, found.progress.total_steps) == (45 * EPOCHS, 45 * EPOCHS)
        assert found.ledger is not None
        assert found.ledger.is_exact
