"""1,000 generations in the same three processes: descriptors, threads and memory against those at the 50th.

The processes run what a worker runs: form the group, wrap the model, make two steps, be told to leave.
"""

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.entry_hub import EntryHub
from benchmarks.measure import ROOT, Goal, Measurement, measurement
from benchmarks.recovery.running_job import environment

MEMBERS = 3
SETTLED = 50


class Member:
    """One process; it is told a line and answers with one."""

    def __init__(self, hub: EntryHub) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.recovery.leaking_member", str(hub.path)],
            cwd=ROOT,
            env={**environment(), "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def say(self, **message: object) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(message) + "\n")
        self._process.stdin.flush()

    def hear(self) -> Any:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise SystemExit(f"a member ended with status {self._process.wait()}")
        return json.loads(line)

    def end(self) -> None:
        self._process.kill()
        self._process.communicate()


def run(quick: bool) -> list[Measurement]:
    generations = 60 if quick else 1000
    folder = tempfile.TemporaryDirectory()
    hub = EntryHub(Path(folder.name) / "hub")
    members = [Member(hub) for _ in range(MEMBERS)]
    try:
        for generation in range(1, generations + 1):
            for rank, member in enumerate(members):
                member.say(join=[generation, rank, MEMBERS])
            for member in members:
                member.hear()
            if generation == SETTLED:
                early = _counts(members)
            if generation % 100 == 0:
                print(f"   {generation} generations", flush=True)
        late = _counts(members)
    finally:
        for member in members:
            member.end()
        hub.close()
        folder.cleanup()
    what = f"after {generations} generations, more than after {SETTLED}"
    goals = {"descriptors": Goal(0, at_least=False), "threads": Goal(0, at_least=False), "megabytes": None}
    return [
        measurement(
            f"{kind} of a worker {what}",
            kind,
            [b[kind] - a[kind] for a, b in zip(early, late, strict=True)],
            goal=goal or Goal(20, at_least=False),
        )
        for kind, goal in goals.items()
    ]


def _counts(members: list[Member]) -> list[dict[str, float]]:
    for member in members:
        member.say(count=True)
    return [member.hear() for member in members]
