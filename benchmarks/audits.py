"""What audits cost a group without liars: eight real workers make steps with audits and without, by turns.

Computing a share is 100 ms of waiting, so that eight workers on few cores have a processor each: audits
repeat that, and nothing else. The exchange is real, over loopback. A sample is the mean of a block of steps,
of which few have an audit and take longer. Each block is a job's first steps, when audits are dense; the
first step has two.
"""

import json
import os
import statistics
import subprocess
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from benchmarks.entry_hub import EntryHub
from benchmarks.measure import ROOT, Goal, Measurement, alternate, measurement

WORKERS = 8
COST_GOAL = Goal(1.1, at_least=False, of_ratio=True)


class Group:
    """So many members, which form a generation for each block of steps."""

    def __init__(self, hub: EntryHub, stack: ExitStack) -> None:
        self._generation = self._until = 0
        self._members = [self._start(hub, rank) for rank in range(WORKERS)]
        for member in self._members:
            stack.callback(member.communicate)
            stack.callback(member.kill)

    def steps(self, count: int, audits: bool) -> tuple[float, float]:
        """Mean milliseconds of so many steps, and how many audits a member made in them, in the mean."""
        self._generation += 1
        self._until += count
        for member in self._members:
            assert member.stdin is not None
            member.stdin.write(json.dumps([self._generation, self._until, audits]) + "\n")
            member.stdin.flush()
        answers: list[Any] = []
        for member in self._members:
            assert member.stdout is not None
            answers.append(json.loads(member.stdout.readline()))
        step_ms = 1000 * statistics.fmean(answers[0]["steps"])
        return step_ms, statistics.fmean(one["audits"] for one in answers)

    def _start(self, hub: EntryHub, rank: int) -> "subprocess.Popen[str]":
        return subprocess.Popen(
            [sys.executable, "-m", "benchmarks.audits_member", str(hub.path), str(rank), str(WORKERS)],
            cwd=ROOT,
            env={**os.environ, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )


def run(quick: bool) -> list[Measurement]:
    """Blocks of 100 steps in turn, after a short one that warms up."""
    rounds, count = (1, 10) if quick else (12, 100)
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        hub = EntryHub(folder / "hub")
        stack.callback(hub.close)
        group = Group(hub, stack)
        group.steps(10, True)
        audited, plain = alternate(
            rounds, lambda: group.steps(count, True), lambda: group.steps(count, False)
        )
    return [
        measurement(
            f"a step of {WORKERS} workers with audits, in the mean of {count}",
            "ms",
            [step_ms for step_ms, _ in audited],
            goal=COST_GOAL,
            rival="without audits",
            rival_samples=[step_ms for step_ms, _ in plain],
        ),
        measurement("audits of a worker in 100 steps", "", [100 * made / count for _, made in audited]),
    ]


def profile(quick: bool) -> str:
    """What an audit is made of is its task's forward and backward pass: there is nothing to take apart."""
    return "An audit is one more forward and backward pass of the audited share.\n"
