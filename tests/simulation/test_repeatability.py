"""One seed is one history, byte for byte, also in another process with another hash seed."""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
SEEDS = (1, 4, 10, 18, 23, 31)
PROGRAM = """
from tests.simulation.simulate import run_history
for seed in {seeds}:
    outcome = run_history(seed)
    print(outcome.history.digest, *outcome.history.lines, sep="\\n")
"""


def _told(hash_seed: str) -> list[str]:
    program = PROGRAM.format(seeds=SEEDS)
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
    ended = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", program],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        check=True,
        timeout=110,
    )
    return ended.stdout.splitlines()


def test_the_same_seed_gives_the_same_history_in_another_process() -> None:
    one, other = _told("1"), _told("2")
    assert len(one) > len(SEEDS)
    assert one == other
