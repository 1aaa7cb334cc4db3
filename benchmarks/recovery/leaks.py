"""What stays behind: of generations in workers, and of deaths and joins in each service of a running system.

The workers are three processes that run what a worker runs, 1,000 times: form the group, wrap the model, make
two steps, be told to leave. The services are those of held.py.
"""

import json
import subprocess
import sys
import tempfile
from collections import defaultdict
from pathlib import Path
from typing import Any

from benchmarks.entry_hub import EntryHub
from benchmarks.measure import ROOT, Measurement
from benchmarks.recovery.growths import Process, Reading, growths
from benchmarks.recovery.held import growth_by_deaths
from benchmarks.recovery.running_job import environment

MEMBERS = 3
READ_EACH = 20  # generations


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
    services = growth_by_deaths(5, settled=2) if quick else growth_by_deaths(60, settled=15)
    return [*services, *_growth_by_generations(60 if quick else 1000, settled=20 if quick else 100)]


def _growth_by_generations(generations: int, settled: int) -> list[Measurement]:
    folder = tempfile.TemporaryDirectory()
    hub = EntryHub(Path(folder.name) / "hub")
    members = [Member(hub) for _ in range(MEMBERS)]
    readings: dict[Process, list[Reading]] = defaultdict(list)
    try:
        for generation in range(1, generations + 1):
            for rank, member in enumerate(members):
                member.say(join=[generation, rank, MEMBERS])
            for member in members:
                member.hear()
            if generation % READ_EACH == 0:
                for rank, member in enumerate(members):
                    member.say(count=True)
                    readings["a worker", rank].append(Reading(generation, member.hear()))
                print(f"   {generation} generations", flush=True)
    finally:
        for member in members:
            member.end()
        hub.close()
        folder.cleanup()
    return growths(readings, settled, "generation")
