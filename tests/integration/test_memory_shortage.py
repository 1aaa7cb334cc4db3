"""Aim: who lacks memory leaves its job to the others, and its node isn't asked again.

Method: real workers, one of which asks for more memory than there is, in the middle of a job.
"""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from greedy_worker_task import EVERYBODY
from worker_processes import workers_of

from peerloom import Client, Embedded, JobHandle
from peerloom.client.types import StateChanged, StepCommitted, WorkerLost

LIMIT_S = 120.0
EPOCHS, STRUCK_AT = 10, 20
pytestmark = pytest.mark.timeout(240)


@pytest.fixture(scope="module")
def system(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Embedded, Path]]:
    """A system whose workers may read a folder."""
    folder = tmp_path_factory.mktemp("greedy")
    (folder / "data").mkdir()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(Path(__file__).parent), prepend=os.pathsep)
        with Embedded(folder / "state", (1, 1), data_roots=(folder / "data",)) as started:
            yield started, folder / "data" / "greedy"


def begun(client: Client, greedy: Path, **more: int | str) -> JobHandle:
    greedy.write_text("")
    arguments = {"greedy": str(greedy)}
    return client.train("greedy_worker_task:GreedyWorker", requests=2, arguments=arguments, **more)


def test_a_slot_without_room_is_left_and_asked_once(system: tuple[Embedded, Path]) -> None:
    started, greedy = system
    with Client(started.address) as client:
        job = begun(client, greedy, epochs=EPOCHS)
        steps, lost = list[int](), list[WorkerLost]()
        for event in job.watch():
            if isinstance(event, WorkerLost):
                lost.append(event)
            if isinstance(event, StepCommitted):
                steps.append(event.step)
                if event.step == STRUCK_AT:
                    greedy.write_text(str(workers_of(started.pids["node-1"])[0].pid))
        result, found = job.result(LIMIT_S), job.status()
        facts = [update.evidence for update in client.belief_history("node-1") if update.evidence]
    assert result.succeeded, result.reason
    assert sorted(set(steps)) == list(range(1, EPOCHS * 45 + 1)), "none left out"
    # A step that it made and told of, and failed before the other had summed it up, is made again.
    assert len(steps) <= EPOCHS * 45 + 1
    assert [(one.worker.node_name, one.reason.split(": ")[0]) for one in lost] == [
        ("node-1", "its slot has too little memory for this job")
    ]
    assert [worker.node_name for worker in found.workers].count("node-1") == 1, "it isn't asked again"
    assert "unfinished" not in [fact.kind for fact in facts], "that a model is too large is no fault of it"
    assert found.ledger is not None
    assert found.ledger.is_exact, found.ledger.verdict


def test_where_nobody_has_room_the_job_says_so(system: tuple[Embedded, Path]) -> None:
    started, greedy = system
    with Client(started.address) as client:
        job = begun(client, greedy, epochs=1000, max_workers=1)
        next(event for event in job.watch() if isinstance(event, StepCommitted))
        greedy.write_text(EVERYBODY)  # whoever works now, or begins anew
        result = job.result(LIMIT_S)
    assert result.state == "failed"
    assert "none of its nodes can do this job" in result.reason
    assert "its slot has too little memory for this job: there are no " in result.reason


def test_a_pipeline_by_hand_that_waits_for_nodes_says_which_lack_memory(
    system: tuple[Embedded, Path],
) -> None:
    started, greedy = system
    with Client(started.address) as client:
        job = begun(client, greedy, epochs=1000, plan="pipeline=2")
        next(event for event in job.watch() if isinstance(event, StepCommitted))
        greedy.write_text(EVERYBODY)
        waits = next(e for e in job.watch() if isinstance(e, StateChanged) and e.state == "waiting")
        job.cancel()
    assert waits.reason.startswith("waiting for nodes: ")
    assert "; not asked again, as they can't do it: node-" in waits.reason
