"""A generation breaks when it is told to, wherever its members sit, and the same processes form the next.

Real processes and a real hub. Nothing waits for a time: each answer has a deadline.
"""

import json
import os
import queue
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from made_identities import Signer

from benchmarks.entry_hub import EntryHub

DEADLINE_S = 90
COUNT_LIMIT_S = 60
SCRIPT = Path(__file__).parent / "group_member.py"


class Member:
    """One process and what it said."""

    def __init__(self, hub: EntryHub, *identity: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, str(SCRIPT), str(hub.path), *identity],
            env={**os.environ, "PYTHONPATH": str(SCRIPT.parents[2])},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._heard: queue.Queue[Any] = queue.Queue()
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._listener.start()

    def _listen(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self._heard.put(json.loads(line))

    def say(self, **message: Any) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(message) + "\n")
        self.process.stdin.flush()

    def hear(self, expected: object) -> Any:
        """The next answer that is `expected`, or that has it as a key."""
        while True:
            answer = self._heard.get(timeout=DEADLINE_S)
            if answer == expected or (isinstance(answer, dict) and expected in answer):
                return answer

    def end(self) -> None:
        self.process.kill()
        self._listener.join(DEADLINE_S)
        for pipe in (self.process.stdin, self.process.stdout):
            assert pipe is not None
            pipe.close()
        self.process.wait()


class MemberPool:
    """Three members and the hub that they meet through; `is_tls`: their collectives travel by TLS."""

    def __init__(self, is_tls: bool) -> None:
        self._folder = tempfile.TemporaryDirectory()
        self.hub = EntryHub(Path(self._folder.name) / "hub")
        signer = Signer(Path(self._folder.name) / "identities")
        names = [f"worker-{number}" for number in (1, 2, 3)]
        paths = [[str(signer.worker(name, "job-1").path)] if is_tls else [] for name in names]
        self.members = [Member(self.hub, *path) for path in paths]
        for member in self.members:
            member.hear("ready")

    def end(self) -> None:
        for member in self.members:
            member.end()
        self.hub.close()
        self._folder.cleanup()

    def form(self, generation: int, ranks: list[int], collective: str = "all_reduce") -> None:
        for rank in ranks:
            self.members[rank].say(join=[generation, rank, len(ranks), collective])
        for rank in ranks:
            self.members[rank].hear("three rounds")

    def break_generation(self, generation: int, ranks: list[int]) -> None:
        for rank in ranks:
            self.members[rank].say(**{"break": generation})
        for rank in ranks:
            self.members[rank].hear("broken")

    def count(self, rank: int, at_most: dict[str, int]) -> Any:
        self.members[rank].say(count=[COUNT_LIMIT_S, at_most])
        return self.members[rank].hear("descriptors")


@pytest.fixture(params=[False, True], ids=["plain", "tls"])
def pool(request: pytest.FixtureRequest) -> Iterator[MemberPool]:
    started = MemberPool(request.param)
    yield started
    started.end()


@pytest.mark.parametrize("collective", ["all_reduce", "all_to_all", "broadcast", "barrier", "direct"])
def test_a_frozen_member_leaves_nobody_hanging(pool: MemberPool, collective: str) -> None:
    """Rank 2 is stopped inside the collectives; told to, the others leave at once and go on as two."""
    pool.form(1, [0, 1, 2], collective)
    pool.members[2].process.send_signal(signal.SIGSTOP)
    pool.break_generation(1, [0, 1])
    pool.form(2, [0, 1])


def test_a_killed_member_leaves_nobody_hanging(pool: MemberPool) -> None:
    pool.form(1, [0, 1, 2])
    pool.members[0].process.kill()
    pool.members[2].say(**{"break": 1})  # whoever doesn't talk to the dead one is told
    pool.members[1].hear("broken")
    pool.members[2].hear("broken")


def test_a_member_that_never_comes_blocks_nobody_who_is_told(pool: MemberPool) -> None:
    """The group is being formed; the third never arrives."""
    for rank in (0, 1):
        pool.members[rank].say(join=[1, rank, 3, "all_reduce"])
        pool.members[rank].hear("forming")
    pool.break_generation(1, [0, 1])
    pool.form(2, [0, 1])


def test_many_generations_leak_nothing(pool: MemberPool) -> None:
    """Thirty generations in the same processes; descriptors and threads come back to what they were."""
    for generation in range(1, 31):
        pool.form(generation, [0, 1, 2])
        pool.break_generation(generation, [0, 1, 2])
        if generation == 5:
            after_five = [pool.count(rank, {}) for rank in (0, 1, 2)]
    for rank, most in enumerate(after_five):
        after_thirty = pool.count(rank, most)
        assert after_thirty["descriptors"] <= most["descriptors"]
        assert after_thirty["threads"] <= most["threads"]
