"""How long a batch takes where connections share links evenly, beside the same method as TCP shares them.

Run by `make bench-pacing`, as root with ns-3. The hosts' TCP is Cubic, as Linux has it unless told otherwise,
or Reno where this machine's kernel lets hosts use no Cubic. A job has its links measured and its connections
paced if it waits for messages for another minute: longer jobs are, shorter ones of the same steps aren't, and
the workers' logs have to say so. Computing takes no time, so that all of a step is its exchange.
"""

import subprocess
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path

from benchmarks.measure import Goal, Measurement, measurement
from benchmarks.sync import told_in, wan_plan
from peerloom.testbed import Testbed

ALLOWED_CONTROLS = Path("/proc/sys/net/ipv4/tcp_allowed_congestion_control")
PARAMETERS = 1_000_000
UNPACED = "the same unpaced"
WAYS = ("schedule=cut:131072,topology=direct", "wfbp-ps")
NEVER_SLOWER = Goal(1.0, at_least=False, of_ratio=True)


@dataclass(frozen=True)
class Cell:
    """A network of (rate, delay) by host; how many batches don't count, and of long and of short jobs do."""

    title: str
    links: tuple[tuple[str, str], ...]
    warm_up: int
    long: int
    short: int


CELLS = (
    Cell("4 nodes, 50 Mbit/s, 1 ms", (("50Mbps", "1ms"),) * 4, 8, 64, 14),
    Cell("4 nodes, 50 Mbit/s, 20 ms", (("50Mbps", "20ms"),) * 4, 8, 64, 14),
    Cell(
        "4 nodes, 100, 50, 50, 20 Mbit/s, 1, 5, 10, 20 ms",
        (("100Mbps", "1ms"), ("50Mbps", "5ms"), ("50Mbps", "10ms"), ("20Mbps", "20ms")),
        4,
        26,
        8,
    ),
)


def run(quick: bool) -> list[Measurement]:
    """Paced and unpaced jobs in turn; quick: one of each."""
    control = "cubic" if "cubic" in ALLOWED_CONTROLS.read_text().split() else "reno"
    found = []
    for cell in CELLS[:1] if quick else CELLS:
        found += _measure(cell, control, WAYS[:1] if quick else WAYS, 1 if quick else 3)
    return found


def profile(quick: bool) -> str:
    """None: each job's own record splits its steps into computing and communication."""
    return ""


def _measure(cell: Cell, control: str, ways: tuple[str, ...], rounds: int) -> list[Measurement]:
    plan = wan_plan(cell.links)
    plan = replace(plan, network=replace(plan.network, congestion_control=control))
    taken: dict[str, tuple[list[float], list[float]]] = {way: ([], []) for way in ways}
    with tempfile.TemporaryDirectory() as folder, Testbed(plan, Path(folder)) as testbed:
        for _ in range(rounds):
            for way, (paced, unpaced) in taken.items():
                paced.append(_job_ms(testbed, Path(folder), cell, way, cell.long))
                unpaced.append(_job_ms(testbed, Path(folder), cell, way, cell.short))
    return [
        measurement(
            f"a batch by {way} over {control.title()}, paced, beside {UNPACED}: {cell.title}",
            "ms",
            paced,
            goal=NEVER_SLOWER,
            rival=UNPACED,
            rival_samples=unpaced,
        )
        for way, (paced, unpaced) in taken.items()
    ]


def _job_ms(testbed: Testbed, folder: Path, cell: Cell, way: str, batches: int) -> float:
    ranks, before = len(cell.links), _paced_in(folder)
    settings = {"requests": ranks, "min_workers": ranks, "max_workers": ranks, "batch_size": ranks}
    arguments = {
        "parameters": str(PARAMETERS),
        "sample_ms": "0",
        "samples": str(ranks * (cell.warm_up + batches)),
    }
    asked = {
        "settings": {**settings, "sync": way, "equal_shares": True},
        "warm_up": cell.warm_up,
        "arguments": arguments,
    }
    took_ms = float(told_in(testbed, "emulated_job", asked))
    expected = ranks if batches == cell.long else 0
    if (paced := _paced_in(folder) - before) != expected:
        raise SystemExit(f"{paced} workers paced their connections, not {expected}: {cell.title}, {way}")
    return took_ms


def _paced_in(folder: Path) -> int:
    """How many workers have told in the testbed's logs that they paced their connections."""
    found = subprocess.run(
        ["grep", "-rhc", "connections_paced", folder], stdout=subprocess.PIPE, check=False, text=True
    )
    return sum(int(line) for line in found.stdout.split())
