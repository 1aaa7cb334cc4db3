"""Questions for which it is best to ask others: a slow client, a model that fits no node, layers that wait.

The slow client has a tenth of a core by a cgroup, which takes root; else its questions are left out. A model
fits no node where the nodes lend less memory to models than it takes. Layers that wait, a known time for each
sample, overlap over three nodes, which layers that compute don't on two cores; the client doesn't trust their
module, so they don't run at home.
"""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks.core_shares import core_shares, why_no_shares
from benchmarks.inference_client import Asking, told
from benchmarks.inference_files import made
from benchmarks.inference_sweep import Questions
from benchmarks.measure import ROOT
from peerloom import Embedded

WIDE, WAITING = "benchmarks.wide_task:Wide", "benchmarks.inference_models:Waiting"
LENT = "PEERLOOM_NODE_INFERENCE_MEMORY_BYTES"
LENT_BYTES = 10_000_000  # the wide model's parameters take 14.3 MB, its largest layer 9.4 MB
NODES = 3
CORE_SHARE = 0.1
SLOW_SIZES = (64, 512)  # an answer to one takes less than the 20 ms in which the cgroup divides a core
SLOW = "a client with a tenth of a core"
LIMIT_S = 300.0


def ask(folder: Path, rounds: int) -> list[Questions]:
    """All of them."""
    with _system(folder / "roomy") as address:
        found = _of_waiting_layers(address, folder, rounds) + _of_a_slow_client(address, folder, rounds, SLOW)
    with _lending(LENT_BYTES), _system(folder / "small") as address:
        return found + _of_a_slow_client(address, folder, rounds, f"{SLOW}, and no node holds the model")


@contextmanager
def _system(state: Path) -> Iterator[str]:
    with Embedded(state, (0,) * NODES, log_level="error") as system:
        yield system.address


@contextmanager
def _lending(memory_bytes: int) -> Iterator[None]:
    os.environ[LENT] = str(memory_bytes)
    try:
        yield
    finally:
        del os.environ[LENT]


def _of_waiting_layers(address: str, folder: Path, rounds: int) -> list[Questions]:
    arguments = {"layers": str(NODES), "seconds": "0.01", "width": "256", "each": "sample"}
    model = made(folder, WAITING, arguments, (256,), "float32")
    where = "3 layers that wait 10 ms a sample, not trusted at home"
    return _asked(address, Asking(str(model), NODES, rounds, where, (1, 8, 32), (256,)), {})


def _of_a_slow_client(address: str, folder: Path, rounds: int, where: str) -> list[Questions]:
    if why_not := why_no_shares():
        print(f"no questions of a slow client: {why_not}", file=sys.stderr)
        return []
    model = made(folder, WIDE, {"steps": "1"}, (784,), "float32")
    with core_shares([CORE_SHARE]) as (group,):
        asking = Asking(str(model), NODES, rounds, where, SLOW_SIZES, (784,), str(group))
        more = {"PEERLOOM_MODULES": WIDE.partition(":")[0], "OMP_NUM_THREADS": "1"}
        return _asked(address, asking, more)


def _asked(address: str, asking: Asking, more: dict[str, str]) -> list[Questions]:
    environment = {**os.environ, "PEERLOOM_ADDRESS": address, **more}
    done = subprocess.run(
        asking.command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, timeout=LIMIT_S, check=True
    )
    return told(done.stdout)
