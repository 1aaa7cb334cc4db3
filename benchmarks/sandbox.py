"""What the sandbox costs a worker: from its fork to its first step, with and without, in turn."""

import json
import os
import subprocess
import sys

from benchmarks.measure import ROOT, Goal, Measurement, measurement

RIVAL = "without a sandbox"
MORE_MS = 50.0


def run(quick: bool) -> list[Measurement]:
    """The time to the first step on both sides, and what the one takes more in the same round."""
    confined_ms, free_ms = _measure(3 if quick else 40)
    more_ms = [ours - rival for ours, rival in zip(confined_ms, free_ms, strict=True)]
    return [
        measurement(
            "from a worker's fork to its first step, in the sandbox",
            "ms",
            confined_ms,
            rival=RIVAL,
            rival_samples=free_ms,
        ),
        measurement("what the sandbox adds to that", "ms", more_ms, goal=Goal(MORE_MS, at_least=False)),
    ]


def profile(quick: bool) -> str:
    """The same figures round by round."""
    confined_ms, free_ms = _measure(3 if quick else 10)
    pairs = zip(confined_ms, free_ms, strict=True)
    return "\n".join(f"{ours:8.2f} ms in the sandbox {rival:8.2f} ms without" for ours, rival in pairs)


def _measure(rounds: int) -> tuple[list[float], list[float]]:
    """In a process of its own: it has to keep to one thread, and to be as warm as an agent's."""
    command = [sys.executable, "-m", "benchmarks.sandbox_forks", str(rounds)]
    paths = [str(ROOT), os.environ.get("PYTHONPATH", "")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in paths if path)}
    environment["OMP_NUM_THREADS"] = "1"
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    confined_ms, free_ms = json.loads(done.stdout)
    return confined_ms, free_ms
