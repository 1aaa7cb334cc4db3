"""How long a batch takes where connections share links evenly, beside the same method as TCP shares them.

Run by `make bench-pacing`, as root with ns-3. The hosts' TCP is Cubic, as Linux has it unless told otherwise,
or Reno where this machine's kernel lets hosts use no Cubic. A job has its links measured and its connections
paced if it waits for messages for another minute: longer jobs are, shorter ones of the same steps aren't, and
the workers' logs have to say so. Computing takes no time, so that all of a step is its exchange.
"""

import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from benchmarks.measure import Goal, Measurement, measurement
from benchmarks.sync import Cell, Way, job_ms, wan_plan
from peerloom.testbed import Testbed

ALLOWED_CONTROLS = Path("/proc/sys/net/ipv4/tcp_allowed_congestion_control")
PARAMETERS = 1_000_000
UNPACED = "the same unpaced"
WAYS = ("schedule=cut:131072,topology=direct", "wfbp-ps")
NEVER_SLOWER = Goal(1.0, at_least=False, of_ratio=True)
_EVEN = Cell("", (), PARAMETERS, 0, tuple(map(Way, WAYS)), UNPACED, commits=64, warm_up=8)
# Each with how many batches of a short job count; `commits` are those of a long one.
CELLS = (
    (replace(_EVEN, title="4 nodes, 50 Mbit/s, 1 ms", links=(("50Mbps", "1ms"),) * 4), 14),
    (replace(_EVEN, title="4 nodes, 50 Mbit/s, 20 ms", links=(("50Mbps", "20ms"),) * 4), 14),
    (
        replace(
            _EVEN,
            title="4 nodes, 100, 50, 50, 20 Mbit/s, 1, 5, 10, 20 ms",
            links=(("100Mbps", "1ms"), ("50Mbps", "5ms"), ("50Mbps", "10ms"), ("20Mbps", "20ms")),
            commits=26,
            warm_up=4,
        ),
        8,
    ),
)


def run(quick: bool) -> list[Measurement]:
    """Paced and unpaced jobs in turn; quick: one of each."""
    control = "cubic" if "cubic" in ALLOWED_CONTROLS.read_text().split() else "reno"
    found = []
    for cell, short in CELLS[:1] if quick else CELLS:
        found += _measure(cell, short, control, cell.ways[:1] if quick else cell.ways, 1 if quick else 3)
    return found


def profile(quick: bool) -> str:
    """None: each job's own record splits its steps into computing and communication."""
    return ""


def _measure(cell: Cell, short: int, control: str, ways: Sequence[Way], rounds: int) -> list[Measurement]:
    plan = wan_plan(cell.links)
    plan = replace(plan, network=replace(plan.network, congestion_control=control))
    taken: dict[Way, tuple[list[float], list[float]]] = {way: ([], []) for way in ways}
    with tempfile.TemporaryDirectory() as folder, Testbed(plan, Path(folder)) as testbed:
        for _ in range(rounds):
            for way, (paced, unpaced) in taken.items():
                paced.append(_job_ms(testbed, Path(folder), cell, way, cell.commits))
                unpaced.append(_job_ms(testbed, Path(folder), cell, way, short))
    return [
        measurement(
            f"a batch by {way.method} over {control.title()}, paced, beside {UNPACED}: {cell.title}",
            "ms",
            paced,
            goal=NEVER_SLOWER,
            rival=UNPACED,
            rival_samples=unpaced,
        )
        for way, (paced, unpaced) in taken.items()
    ]


def _job_ms(testbed: Testbed, folder: Path, cell: Cell, way: Way, batches: int) -> float:
    ranks, before = len(cell.links), _paced_in(folder)
    took_ms = job_ms(testbed, cell, way, ranks, batches)
    expected = ranks if batches == cell.commits else 0
    if (paced := _paced_in(folder) - before) != expected:
        raise SystemExit(
            f"{paced} workers paced their connections, not {expected}: {cell.title}, {way.method}"
        )
    return took_ms


def _paced_in(folder: Path) -> int:
    """How many workers have told in the testbed's logs that they paced their connections."""
    found = subprocess.run(
        ["grep", "-rhc", "connections_paced", folder], stdout=subprocess.PIPE, check=False, text=True
    )
    return sum(int(line) for line in found.stdout.split())
