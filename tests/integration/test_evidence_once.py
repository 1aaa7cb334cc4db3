"""Aim: what a job saw of its nodes reaches the selector once, as what it was, whoever dies on the way.

Method: a real system in which a coordinator kills itself at a named call, so many times, before or after the
call did its work; the job's own fault is a worker that is killed at a committed step.
"""

import contextlib
from collections import Counter
from pathlib import Path

import pytest
from told_evidence import wait_until_all_is_told
from worker_processes import workers_of

from peerloom import Client, Embedded
from peerloom.client.types import StepCommitted, WorkerLost

JOB_LIMIT_S = 120.0
EPOCHS = 6
KILLED_AT = 20
pytestmark = pytest.mark.timeout(240)

# Each death leaves a file behind, so that the process which is started next knows how many there were.
DEADLY = """
import os, signal, sys
from pathlib import Path

if "peerloom.services.{service}" in sys.orig_argv:
    from peerloom.services.{service}.store import {store} as Store

    done = Store.{method}
    deaths = Path({folder!r})

    def deadly(self, *given):
        count = len(list(deaths.glob("death-*")))
        if count >= {deaths} or not ({condition}):
            return done(self, *given)
        if count % 2:
            done(self, *given)
        (deaths / f"death-{{count}}").touch()
        os.kill(os.getpid(), signal.SIGKILL)

    Store.{method} = deadly
"""
HAS_FAULT = "any(e.kind == 3 for change in given[0] for e in change.evidence)"


@pytest.mark.parametrize(
    ("service", "store", "method", "condition", "deaths"),
    [
        ("selector", "SelectorStore", "report", "True", 2),
        ("trainer", "TrainerStore", "write", HAS_FAULT, 2),
        ("trainer", "TrainerStore", "forget_evidence", "True", 2),
    ],
    ids=["selector-reported-to", "trainer-writing-it", "trainer-having-reported"],
)
def test_evidence_counts_once(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    service: str,
    store: str,
    method: str,
    condition: str,
    deaths: int,
) -> None:
    """Killed before the call does its work, then after it did but before anybody heard of that."""
    filled = DEADLY.format(
        service=service, store=store, method=method, condition=condition, deaths=deaths, folder=str(tmp_path)
    )
    (tmp_path / "sitecustomize.py").write_text(filled)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=":")
    with contextlib.ExitStack() as stack:
        system = stack.enter_context(Embedded(tmp_path / "state", (1, 1, 1)))
        client = stack.enter_context(Client(system.address, patience_s=JOB_LIMIT_S))
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
        assert len(list(tmp_path.glob("death-*"))) == deaths, "all deaths belong to what was told until now"
        found = facts(client)
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
    for node in ("node-1", "node-2", "node-3"):
        told = [update.evidence for update in client.belief_history(node) if update.evidence]
        found[node] = Counter(fact.kind for fact in told)
    return found
