"""Aim: what a job saw of its nodes reaches the selector once, as what it was, whoever dies on the way.

Method: a real system in which a coordinator kills itself at a named call, twice, before and after the call
did its work; the job's own fault is a worker that is killed at a committed step. One job after the other
meets each of these deaths, and what was counted before it is taken off.
"""

import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from told_evidence import wait_until_all_is_told
from worker_processes import workers_of

from peerloom import Client, Embedded
from peerloom.client.types import StepCommitted, WorkerLost

JOB_LIMIT_S = 120.0
EPOCHS = 6
KILLED_AT = 20
DEATHS = 2
NODES = ("node-1", "node-2", "node-3")
pytestmark = pytest.mark.timeout(240)

# Each death leaves a file behind, so that the process which is started next knows how many there were.
DEADLY = """
import os, signal, sys
from pathlib import Path

folder = Path({folder!r})

def put_death_into(store, method, concerns):
    done, name = getattr(store, method), f"{{store.__name__}}.{{method}}"

    def deadly(self, *given):
        died = len(list(folder.glob(f"{{name}}-*")))
        if (folder / "chosen").read_text() != name or died >= {deaths} or not concerns(*given):
            return done(self, *given)
        if died % 2:
            done(self, *given)
        (folder / f"{{name}}-{{died}}").touch()
        os.kill(os.getpid(), signal.SIGKILL)

    setattr(store, method, deadly)

if "peerloom.services.selector" in sys.orig_argv:
    from peerloom.services.selector.store import SelectorStore

    put_death_into(SelectorStore, "report", lambda *given: True)
if "peerloom.services.trainer" in sys.orig_argv:
    from peerloom.services.trainer.store import TrainerStore

    def has_fault(changes, *given):
        return any(fact.kind == 3 for change in changes for fact in change.evidence)

    put_death_into(TrainerStore, "write", has_fault)
    put_death_into(TrainerStore, "forget_evidence", lambda *given: True)
"""


@pytest.fixture(scope="module")
def deaths(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder where `chosen` names the deadly call; each death leaves a file named for it."""
    folder = tmp_path_factory.mktemp("deaths")
    (folder / "chosen").write_text("none")
    (folder / "sitecustomize.py").write_text(DEADLY.format(folder=str(folder), deaths=DEATHS))
    return folder


@pytest.fixture(scope="module")
def system(deaths: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Embedded]:
    """Three nodes, and coordinators that die at the chosen call."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(deaths), prepend=os.pathsep)
        with Embedded(tmp_path_factory.mktemp("system"), (1, 1, 1)) as started:
            yield started


@pytest.mark.parametrize(
    "call",
    ["SelectorStore.report", "TrainerStore.write", "TrainerStore.forget_evidence"],
    ids=["selector-reported-to", "trainer-writing-it", "trainer-having-reported"],
)
def test_evidence_counts_once(system: Embedded, deaths: Path, call: str) -> None:
    """Killed before the call does its work, then after it did but before anybody heard of that."""
    with Client(system.address, patience_s=JOB_LIMIT_S) as client:
        before = facts(client)
        (deaths / "chosen").write_text(call)
        job = client.train("digits", requests=3, epochs=EPOCHS)
        lost = []
        for event in job.watch():
            if isinstance(event, StepCommitted) and event.step == KILLED_AT:
                [worker] = workers_of(system.pids["node-1"])
                worker.kill()
            if isinstance(event, WorkerLost):
                lost.append(event.worker.node_name)
        result = job.result(JOB_LIMIT_S)
        assert result.succeeded, result.reason
        assert lost == ["node-1"]
        wait_until_all_is_told(system)
        died = len(list(deaths.glob(f"{call}-*")))
        assert died == DEATHS, "all deaths belong to what was told until now"
        found = facts(client)
    for node, counts in found.items():
        counts.subtract(before[node])
    assert {name: counts["unfinished"] for name, counts in found.items()} == {
        "node-1": 1,
        "node-2": 0,
        "node-3": 0,
    }
    trained = [counts["training"] for counts in found.values()]
    assert max(trained) == 1
    assert sum(trained) >= 2, "the survivors took part to the end; a replacement may have, too"
    assert all(counts["interruption"] == 0 for counts in found.values())


def facts(client: Client) -> dict[str, Counter[str]]:
    """The kinds of evidence of each node."""
    found = {}
    for node in NODES:
        told = [update.evidence for update in client.belief_history(node) if update.evidence]
        found[node] = Counter(fact.kind for fact in told)
    return found
