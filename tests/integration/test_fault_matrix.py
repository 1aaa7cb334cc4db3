"""Aim: whoever dies or freezes, wherever in its work, alone or with others, the job loses nothing.

Method: real processes; a task that asks the injector at each point of its training (fault_injector.py). A
table of faults for crews of 2, 3 and 5 strikes one job after the other; after each one the crew is completed.
Then everything that was promised is checked: each step once, each sample once, the parameters the same on all
workers at every step, and as many losses and as much evidence as there were faults.
"""

import contextlib
import os
from collections.abc import Sequence
from pathlib import Path

import pytest
from fault_injector import Fault, Injector
from told_evidence import wait_until_all_is_told

from peerloom import Client, Embedded, JobHandle
from peerloom.client.types import JobEvent, StepCommitted, WorkerLost

JOB_LIMIT_S = 60.0
STEPS = 100 * 7
SAMPLES = 100 * 100
pytestmark = pytest.mark.timeout(400)

FAULTS: dict[str, tuple[tuple[int, ...], list[Fault]]] = {
    "2 workers": (
        (1, 1, 1),
        [
            Fault("step", (0,), world=2, before_step=1),
            Fault("loading"),  # the newcomer that was to replace it
            Fault("collective", (1,), world=2),
            Fault("takeover"),  # the newcomer again, with the state just received
            Fault("collective", (0,), "stop", world=2),
            Fault("evaluation", (0,), world=2),
            Fault("collective", (0,), "agent", world=2),
        ],
    ),
    "3 workers": (
        (2, 2, 2),
        [
            Fault("step", (1,), world=3, before_step=1),
            Fault("collective", (0,), world=3),
            Fault("state", (0,)),  # rank 0 hands its state to the newcomer
            Fault("step", (0,), world=2, while_loading=True),
            Fault("commit", (0,), world=3),
            Fault("evaluation", (1,), "stop", world=3),
            Fault("collective", (0, 1), world=3),
            Fault("step", (2,), "freeze", world=3),
        ],
    ),
    "5 workers": (
        (3, 2, 2),
        [
            Fault("step", (0, 4), world=5, before_step=1),
            Fault("collective", (0, 2, 4), world=5),
            Fault("collective", (3,), "stop", world=5),
            Fault("evaluation", (0,), "agent", world=5),
        ],
    ),
}


@pytest.mark.parametrize("crew", FAULTS)
def test_faults_at_every_point(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, crew: str) -> None:
    slots, faults = FAULTS[crew]
    # A checkpoint would make `state` ambiguous; nothing here needs one.
    monkeypatch.setenv("PEERLOOM_TRAINER_CHECKPOINT_INTERVAL_S", "0")
    run_struck(tmp_path, monkeypatch, slots, faults, workers=int(crew[0]))


def test_faults_while_a_checkpoint_is_saved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rank 0 saves it; it dies of that, then the next rank 0 does, and the last one goes on alone."""
    monkeypatch.setenv("PEERLOOM_TRAINER_CHECKPOINT_INTERVAL_S", "0.2")
    faults = [Fault("state", (0,), world=3), Fault("state", (0,), world=2, while_loading=True)]
    run_struck(tmp_path, monkeypatch, (2, 1), faults, workers=3)


def run_struck(
    folder: Path, monkeypatch: pytest.MonkeyPatch, slots: Sequence[int], faults: list[Fault], workers: int
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parent), prepend=os.pathsep)
    # An agent that is frozen for long isn't interrupted; one that was killed is, when it registers again.
    monkeypatch.setenv("PEERLOOM_REGISTRY_DEAD_AFTER_S", "60")
    # The task asks the injector by a Unix socket, which the sandbox takes away; a broken group would end TCP.
    monkeypatch.setenv("PEERLOOM_NODE_NO_SANDBOX", "true")
    agents = sum(fault.kind == "agent" for fault in faults)
    injector = Injector(folder, faults)
    with contextlib.ExitStack() as stack:
        stack.callback(injector.close)
        system = stack.enter_context(Embedded(folder / "state", slots, data_roots=(injector.path.parent,)))
        client = stack.enter_context(Client(system.address))
        job = client.train(
            "fault_task:Struck",
            arguments={"socket_path": str(injector.path)},
            requests=len(slots),
            max_workers=workers,
            equal_shares=True,
        )
        events = list(job.watch())
        assert injector.left == [], f"{job.result(JOB_LIMIT_S)}"
        assert injector.differing == []
        check_complete(job, events)
        wait_until_all_is_told(system)
        check_evidence(client, events, injector.killed, agents)


def check_complete(job: JobHandle, events: list[JobEvent]) -> None:
    result = job.result(JOB_LIMIT_S)
    assert result.succeeded, result.reason
    assert [event.sequence for event in events] == list(range(1, len(events) + 1))
    steps = [event for event in events if isinstance(event, StepCommitted)]
    assert [step.step for step in steps] == list(range(1, STEPS + 1))
    assert sum(step.samples for step in steps) == SAMPLES
    ledger = job.status().ledger
    assert ledger is not None
    assert (ledger.is_exact, ledger.discarded_samples) == (True, 0), ledger.verdict


def check_evidence(client: Client, events: list[JobEvent], killed: int, agents: int) -> None:
    """A killed worker is an unfinished piece of work, a killed agent an interruption: each told once."""
    told, interruptions = unfinished(client), client.interruptions()
    assert (len(told), len(interruptions)) == (killed, agents), f"{told}, {interruptions}"
    assert all("was lost" in detail for detail in told)
    assert len([event for event in events if isinstance(event, WorkerLost)]) >= killed + agents


def unfinished(client: Client) -> list[str]:
    """What each piece of evidence for unfinished work says, over all nodes."""
    updates = [update for node in client.nodes() for update in client.belief_history(node.name)]
    facts = [update.evidence for update in updates if update.evidence]
    return [fact.detail for fact in facts if fact.kind == "unfinished"]
