"""How long a batch takes over slow links, by each way to synchronise, beside plain DDP and a bound.

Run by `make bench-sync`, as root with ns-3. Jobs run on the whole system behind ns-3's links of medium wan,
the rival on the same hosts between them. Parameters, gradients, optimiser and traffic are real; computing is
emulated (the task "emulated"): it is waited for, since two cores can't compute for four nodes at once.
"""

import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import yaml

from benchmarks.measure import ROOT, Goal, Measurement, measurement
from peerloom.kit.codec_sizes import VALUE_BYTES
from peerloom.testbed import Plan, Testbed, parse_plan

RIVAL = "plain DDP, gloo"
COMPUTING = "computing alone"
ROUND_TRIP = "a round trip of the farthest pair"
LONGER = "max(computing, bytes / rate) and a round trip"
LONG_COMMITS = 2  # of rounds of local steps, after the first
WITHOUT_CHECKPOINTS = {"trainer": {"checkpoint_interval_s": 3600}}  # the rivals make none either
_PORT = 29400
_LIMIT_S = 600.0


@dataclass(frozen=True)
class Way:
    """A method of `--sync` with `batches` a round; its goals beside the cell's bound and its exact method.

    With `is_whole` batches come in pieces, of which there is one: so forward passes wait for all sums.
    """

    method: str
    goal: Goal | None = None
    beside_exact: Goal | None = None
    batches: int = 1
    is_whole: bool = False

    @property
    def name(self) -> str:
        """What figures call it."""
        return f"{self.method}, forward passes that wait for all" if self.is_whole else self.method


@dataclass(frozen=True)
class Cell:
    """A network and a model: `links` are (rate, delay) of each host, `compute_ms` a batch's computing."""

    title: str
    links: tuple[tuple[str, str], ...]
    parameters: int
    compute_ms: float
    ways: tuple[Way, ...]
    bound: str
    commits: int
    warm_up: int = 2
    exact: str = "wfbp-a2a"


CLOSE = Goal(1.05, at_least=False, of_ratio=True)
NEAR = Goal(1.4, at_least=False, of_ratio=True)
FAR = Cell(
    "6,000 parameters, 3 nodes, 200, 50, 20 Mbit/s, 1, 10, 40 ms",
    (("200Mbps", "1ms"), ("50Mbps", "10ms"), ("20Mbps", "40ms")),
    parameters=6_000,
    compute_ms=0,
    ways=(
        Way("wfbp-a2a"),
        Way("wfbp-ps"),
        Way("topology=direct", Goal(1.2, at_least=False, of_ratio=True)),
    ),
    bound=ROUND_TRIP,
    commits=20,
)
NARROW = Cell(
    "1.4 million parameters, 130 ms of computing, 4 nodes, 50 Mbit/s, 1 ms",
    (("50Mbps", "1ms"),) * 4,
    parameters=1_400_000,
    compute_ms=130,
    ways=(
        Way("wfbp-a2a"),
        Way("codec=int8"),
        *(
            Way(f"codec={codec}", NEAR, Goal(1 / 3, at_least=False, of_ratio=True))
            for codec in ("int4", "mxfp4")
        ),
        # What `auto,quality=near` takes there.
        Way("schedule=cut:524288,topology=direct,codec=mxfp4", NEAR),
        Way("period=32,outer=nesterov:1.0:0.6,codec=int4", batches=32),
        Way("period=8", batches=8),
        Way("period=8,delay=1", batches=8),
    ),
    bound=COMPUTING,
    commits=6,
)

# A rank sends 6 MB a step, which takes its link 960 ms: as long as computing does.
EVEN = Cell(
    "1 million parameters, 960 ms of computing, 4 nodes, 50 Mbit/s, 1 ms",
    (("50Mbps", "1ms"),) * 4,
    parameters=1_000_000,
    compute_ms=960,
    ways=(
        Way("wfbp-a2a"),
        Way("schedule=merged:524288,topology=ring", CLOSE),
        Way("schedule=merged:131072,topology=direct"),
        Way("schedule=cut:131072,topology=direct", is_whole=True),
        Way("schedule=cut:131072,topology=direct", CLOSE),
        Way("schedule=cut:131072,topology=ps", CLOSE),
    ),
    bound=LONGER,
    commits=6,
)

# The same exchange with nothing to hide behind: what of its links' rate it reaches.
IDLE = Cell(
    "1 million parameters, no computing, 4 nodes, 50 Mbit/s, 1 ms",
    EVEN.links,
    parameters=EVEN.parameters,
    compute_ms=0,
    ways=(Way("wfbp-a2a"), Way("schedule=cut:131072,topology=direct")),
    bound=LONGER,
    commits=6,
)


def run(quick: bool) -> list[Measurement]:
    """Each cell's ways in turn, with the rival and the bound among them."""
    found: list[Measurement] = []
    for cell in (FAR, NARROW, EVEN, IDLE):
        found += _measure(cell, 1 if quick else 5, 3 if quick else cell.commits)
    return found


def profile(quick: bool) -> str:
    """None: each job's own record splits its steps into computing and communication."""
    return ""


def wan_plan(
    links: Sequence[tuple[str, str]],
    settings: Mapping[str, Mapping[str, object]] = WITHOUT_CHECKPOINTS,
    slots: int = 1,
) -> Plan:
    """Hosts of so many `slots` behind ns-3's medium wan, each with its link's rate and delay.

    `settings` are by service.
    """
    hosts = [
        {"name": f"host-{node}", "node": node, "slots": slots, "link": {"rate": rate, "delay": delay}}
        for node, (rate, delay) in enumerate(links, 1)
    ]
    content = {
        "version": 1,
        "name": "sync",
        "backend": "ns3",
        "door": False,  # the rival's gradients travel in plain too
        "settings": settings,
        "network": {"nodes": len(hosts) + 1, "medium": "wan", "rate": "1Gbps", "delay": "1us", "mtu": 9000},
        "hosts": hosts,
    }
    return parse_plan("sync.yaml", yaml.safe_dump(content))


def _measure(cell: Cell, rounds: int, commits: int) -> list[Measurement]:
    taken: dict[str, list[float]] = {RIVAL: [], cell.bound: [], **{way.name: [] for way in cell.ways}}
    with tempfile.TemporaryDirectory() as folder, Testbed(wan_plan(cell.links), Path(folder)) as testbed:
        for _ in range(rounds):
            for way in cell.ways:
                taken[way.name].append(job_ms(testbed, cell, way, len(cell.links), commits))
            taken[RIVAL].append(_rival_ms(testbed, cell, commits))
            taken[cell.bound].append(_bound_ms(testbed, cell, commits))
    found = [_of(cell, "all-reduce of plain DDP", taken[RIVAL], cell.bound, taken[cell.bound], None)]
    for way in cell.ways:
        ours = taken[way.name]
        found.append(_of(cell, way.name, ours, cell.bound, taken[cell.bound], way.goal))
        found.append(_of(cell, way.name, ours, RIVAL, taken[RIVAL], None))
        if way.beside_exact:
            found.append(_of(cell, way.name, ours, cell.exact, taken[cell.exact], way.beside_exact))
    return found


def _of(
    cell: Cell, what: str, ours: list[float], rival: str, others: list[float], goal: Goal | None
) -> Measurement:
    name = f"a batch by {what} beside {rival}: {cell.title}"
    return measurement(name, "ms", ours, goal=goal, rival=rival, rival_samples=others)


def _bound_ms(testbed: Testbed, cell: Cell, commits: int) -> float:
    if cell.bound == COMPUTING:
        return job_ms(testbed, cell, Way(""), 1, commits)
    if cell.bound == LONGER:
        return longer_ms(cell)
    # The two whose delays are longest.
    by_delay = sorted(testbed.plan.hosts, key=lambda host: float(cell.links[host.node - 1][1][:-2]))
    far, farther = by_delay[-2:]
    command = ["ping", "-q", "-c", "20", "-i", "0.2", farther.address]
    output, _ = testbed.popen(command, far.name, stdout=subprocess.PIPE).communicate(timeout=60)
    match = re.search(rb"= [\d.]+/([\d.]+)/", output)
    assert match, f"ping said: {output!r}"
    return float(match[1])


def longer_ms(cell: Cell) -> float:
    """What computing takes, or else what a rank's bytes of a sum do on its equal link, and a round trip."""
    ranks, rate, delay = len(cell.links), cell.links[0][0], cell.links[0][1]
    sent_bytes = 2 * (ranks - 1) / ranks * VALUE_BYTES * cell.parameters
    travelling_ms = 8 * sent_bytes / (1000 * float(rate.removesuffix("Mbps")))
    return max(cell.compute_ms, travelling_ms) + 4 * float(delay.removesuffix("ms"))


def _arguments(
    cell: Cell, workers: int, commits: int, batches: int = 1, is_whole: bool = False
) -> dict[str, object]:
    """A batch has a sample for each worker, and each takes as long as a batch computes."""
    warm_up, commits = (cell.warm_up, commits) if batches == 1 else (batches, min(commits, LONG_COMMITS))
    return {
        "warm_up": warm_up,
        "arguments": {
            "parameters": str(cell.parameters),
            "sample_ms": str(cell.compute_ms),
            "samples": str(workers * (warm_up + batches * commits)),
            **({"micro_batch": "1"} if is_whole else {}),
        },
    }


def job_ms(testbed: Testbed, cell: Cell, way: Way, workers: int, commits: int) -> float:
    """The milliseconds a batch by this way, of so many `commits` after the cell's warm-up."""
    asked = _arguments(cell, workers, commits, way.batches, way.is_whole)
    everybody = {"requests": workers, "min_workers": workers, "max_workers": workers}
    settings = {**everybody, "batch_size": workers, "sync": way.method, "equal_shares": True}
    return testbed_job_ms(testbed, {"settings": settings, **asked})


def _rival_ms(testbed: Testbed, cell: Cell, commits: int) -> float:
    return testbed_script_ms(testbed, "sync_script", _arguments(cell, len(cell.links), commits))


def testbed_job_ms(testbed: Testbed, asked: dict[str, object]) -> float:
    """The milliseconds a batch of a job (`emulated_job`) on the testbed's hosts."""
    return float(told_in(testbed, "emulated_job", asked))


def told_in(testbed: Testbed, program: str, asked: dict[str, object], limit_s: float = _LIMIT_S) -> bytes:
    """What a program of the benchmarks prints of jobs that it asks for from inside the testbed."""
    command = [sys.executable, "-m", f"benchmarks.{program}", json.dumps(asked)]
    process = testbed.popen(command, stdout=subprocess.PIPE, cwd=ROOT)
    told: bytes = process.communicate(timeout=limit_s)[0]
    if process.returncode:
        raise SystemExit(f"the job {asked} ended with status {process.returncode}")
    return told


def testbed_script_ms(testbed: Testbed, script: str, asked: dict[str, object]) -> float:
    """What rank 0 of a rival's script prints, of which each host of the testbed runs a rank."""
    common = {
        "MASTER_ADDR": testbed.plan.hosts[0].address,
        "MASTER_PORT": str(_PORT),
        "WORLD_SIZE": str(len(testbed.plan.hosts)),
        "GLOO_SOCKET_IFNAME": "eth0",
        "OMP_NUM_THREADS": "1",
    }
    command = [sys.executable, "-m", f"benchmarks.{script}", json.dumps(asked)]
    members = [
        testbed.popen(
            ["env", *(f"{key}={value}" for key, value in {**common, "RANK": str(rank)}.items()), *command],
            host.name,
            stdout=subprocess.PIPE,
            cwd=ROOT,
        )
        for rank, host in enumerate(testbed.plan.hosts)
    ]
    told = [member.communicate(timeout=_LIMIT_S)[0] for member in members]
    if any(member.returncode for member in members):
        raise SystemExit(f"{script} ended with {[member.returncode for member in members]}")
    return float(told[0])
