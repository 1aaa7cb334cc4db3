"""What it costs that gradients travel by TLS: two processes on loopback, with relays and without, by turns.

A step is 50 ms of waiting (which stands for computing) and an all-reduce of 4 MB. What a pair of cores
carries is measured with broadcasts of 64 MB, which one member sends and the other receives, and with
all-reduces of 64 MB: in a ring of two each member sends and receives as many bytes as the tensor has. They
are divided by the busier member's processor time, not by the clock's: others may be there.
"""

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from benchmarks.entry_hub import EntryHub
from benchmarks.measure import ROOT, Goal, Measurement, measurement
from peerloom.admission.certificates import Authority
from peerloom.kit.identity import write_identity
from peerloom.kit.principal import Principal, Role

STEP_S, STEP_BYTES, LARGE_BYTES = 0.05, 4_000_000, 64_000_000
PLAIN, TLS = 0, 1
LIFE_S = 86_400.0
STEP_GOAL = Goal(1.15, at_least=False, of_ratio=True)


class Pair:
    """Two members, with relays or without."""

    def __init__(self, folder: Path, hub: EntryHub, is_tls: bool) -> None:
        self._generation = 0
        identities = identities_in(folder) if is_tls else ["", ""]
        self._members = [self._start(hub, identity) for identity in identities]
        self._ask_all([{}] * 2, sends=False)

    def form(self) -> float:
        """Seconds until a group of both stands."""
        self._generation += 1
        return float(max(self._ask_all([{"join": [self._generation, rank, 2]} for rank in (0, 1)])))

    def steps(self, count: int, compute_s: float, size_bytes: int) -> tuple[float, float]:
        """Seconds of the median step, and of a processor, on the member that needs more of them."""
        answers = self._ask_all([{"steps": [count, compute_s, size_bytes]}] * 2)
        return max(statistics.median(taken) for taken, _ in answers), max(busy_s for _, busy_s in answers)

    def broadcasts(self, count: int, size_bytes: int) -> float:
        """Seconds of a processor that one takes, on the member that needs more of them."""
        return float(max(self._ask_all([{"broadcasts": [count, size_bytes]}] * 2)))

    def break_off(self) -> float:
        """Seconds from the word to the free training thread, on the slower member; the group is gone then."""
        self._ask_all([{"wait": LARGE_BYTES}] * 2)
        return float(max(self._ask_all([{"break": True}] * 2)))

    def close(self) -> None:
        """Ends both."""
        for member in self._members:
            member.kill()
            member.communicate()

    def _start(self, hub: EntryHub, identity: str) -> "subprocess.Popen[str]":
        return subprocess.Popen(
            [sys.executable, "-m", "benchmarks.collective_member", str(hub.path), identity],
            cwd=ROOT,
            env={**os.environ, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def _ask_all(self, messages: list[dict[str, Any]], sends: bool = True) -> list[Any]:
        for member, message in zip(self._members, messages, strict=True):
            assert member.stdin is not None
            if sends:
                member.stdin.write(json.dumps(message) + "\n")
                member.stdin.flush()
        answers = []
        for member in self._members:
            assert member.stdout is not None
            answers.append(json.loads(member.stdout.readline()))
        return answers


def identities_in(folder: Path) -> list[str]:
    """Paths of two workers' identities."""
    authority, paths = Authority.new(time.time(), 1), [folder / "1.pem", folder / "2.pem"]
    for path in paths:
        principal = Principal(Role.WORKER, path.stem, "owner", "node-1", "job-1")
        write_identity(path, authority.credentials(principal, time.time(), LIFE_S))
    return [str(path) for path in paths]


def run(quick: bool) -> list[Measurement]:
    rounds, count = (2, 5) if quick else (10, 40)
    samples: list[list[list[float]]] = [[[], []] for _ in range(5)]
    step, large, one_way, forming, breaking = samples
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        pairs = []
        for is_tls in (False, True):
            hub = EntryHub(folder / f"hub-{is_tls}")
            stack.callback(hub.close)
            pairs.append(Pair(folder, hub, is_tls))
            stack.callback(pairs[-1].close)
        for _ in range(rounds):
            for way, pair in enumerate(pairs):
                forming[way].append(pair.form())
                step[way].append(1000 * pair.steps(count, STEP_S, STEP_BYTES)[0])
                large[way].append(LARGE_BYTES / 1e6 / pair.steps(max(2, count // 8), 0.0, LARGE_BYTES)[1])
                one_way[way].append(LARGE_BYTES / 1e6 / pair.broadcasts(max(2, count // 8), LARGE_BYTES))
                breaking[way].append(1000 * pair.break_off())
    return [
        _beside("a step of 50 ms with 4 MB of gradients by TLS", "ms", step, STEP_GOAL),
        _beside("a core sends by TLS what another receives", "MB/s", one_way, Goal(500, True)),
        _beside("a core sends and receives by TLS at once", "MB/s each way", large, Goal(500, True)),
        _beside("forming a group by TLS", "s", forming, None),
        _beside("from the word to a free training thread, by TLS", "ms", breaking, Goal(50, False)),
    ]


def _beside(name: str, unit: str, samples: list[list[float]], goal: Goal | None) -> Measurement:
    return measurement(
        name, unit, samples[TLS], goal=goal, rival="plain collectives", rival_samples=samples[PLAIN]
    )


def profile(quick: bool) -> str:
    """Where a byte's time goes: what openssl alone encrypts in a second on a core."""
    command = ["openssl", "speed", "-seconds", "1", "-bytes", "16384", "-evp", "aes-256-gcm"]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout
