"""The races of each cell, and what is told of them."""

import os
import statistics
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import yaml

from benchmarks.accuracy.race import KILL_EACH_S, Outcome, run_race
from benchmarks.accuracy.racers import Ours, Racer, Torchft, Torchrun
from benchmarks.accuracy.trial import OUTER_MOMENTUM, OUTER_RATE, PERIOD, Trial
from benchmarks.measure import Goal, Measurement, let_nodes_import, measurement
from peerloom.testbed import Plan, Testbed, parse_plan

LINKS_MS = (5, 10, 15, 20)  # of each host, one way
SAMPLE_MS = (3, 3, 4, 6)
SEEDS = 5
LIMIT_S = 150.0
SOONER = 5
SELDOM = f"period={PERIOD},outer=nesterov:{OUTER_RATE}:{OUTER_MOMENTUM}"
AUTO, EXACT = "auto,quality=relaxed", "wfbp-a2a"
Make = Callable[[Testbed, Trial, Path], Racer]
OURS: dict[str, Make] = {
    f"Peerloom {sync}": partial(Ours, sync=sync) for sync in (AUTO, f"{SELDOM},codec=int4", EXACT)
}
RIVALS: dict[str, Make] = {
    "torchrun DDP": Torchrun,
    "torchft-nightly DDP": partial(Torchft, way="ddp"),
    f"torchft-nightly DiLoCo, {PERIOD} batches": partial(Torchft, way="diloco"),
}


@dataclass(frozen=True)
class Cell:
    """A task over links of so many Mbit/s."""

    name: str
    title: str
    task: str
    batch: int
    target: float
    rate_mbit_s: int


CELLS = (
    Cell("mnist-10", "MNIST network to 96 %", "mnist", 64, 0.96, 10),
    Cell("mnist-50", "MNIST network to 96 %", "mnist", 64, 0.96, 50),
)


def chosen_cells() -> tuple[Cell, ...]:
    """What CELLS names, all when it is empty. Raises SystemExit for an unknown name."""
    asked = os.environ.get("CELLS", "").split()
    unknown = sorted({*asked} - {cell.name for cell in CELLS})
    if unknown:
        known = ", ".join(cell.name for cell in CELLS)
        raise SystemExit(f"error: there is no cell {', '.join(unknown)}; there are {known}")
    return tuple(cell for cell in CELLS if not asked or cell.name in asked)


def run_cell(cell: Cell, quick: bool) -> list[Measurement]:
    """All racers in turn, seed by seed."""
    outcomes: dict[str, list[Outcome]] = {name: [] for name in {**OURS, **RIVALS}}
    with tempfile.TemporaryDirectory() as state, _testbed(cell, Path(_mnist()), Path(state)) as testbed:
        trial = _trial(cell, testbed.plan, Path(_mnist()))
        for seed in range(1, 2 if quick else SEEDS + 1):
            for name, make in {**OURS, **RIVALS}.items():
                with tempfile.TemporaryDirectory(prefix="race-") as folder:
                    racer = make(testbed, replace(trial, seed=seed), Path(folder))
                    outcomes[name].append(run_race(racer, 60.0 if quick else LIMIT_S))
                print(f"  {cell.name}, seed {seed}, {name}: {outcomes[name][-1]}", flush=True)
    return list(_measured(cell, outcomes))


def _mnist() -> str:
    folder = os.environ.get("MNIST", "")
    if not folder:
        raise SystemExit("error: name a folder with MNIST's files: MNIST=DIR")
    return str(Path(folder).resolve())


def _testbed(cell: Cell, data: Path, state: Path) -> Testbed:
    hosts = [
        {
            "name": f"host-{node}",
            "node": node,
            "link": {"rate": f"{cell.rate_mbit_s}Mbps", "delay": f"{delay}ms"},
        }
        for node, delay in enumerate(LINKS_MS, 1)
    ]
    content = {
        "version": 1,
        "name": "accuracy",
        "backend": "ns3",
        "door": False,  # the rivals' gradients travel in plain too
        "network": {"nodes": len(hosts) + 1, "medium": "wan", "rate": "1Gbps", "delay": "1us", "mtu": 9000},
        "settings": {"node": {"data_root": str(data)}},
        "hosts": hosts,
    }
    let_nodes_import()
    return Testbed(parse_plan("accuracy.yaml", yaml.safe_dump(content)), state)


def _trial(cell: Cell, plan: Plan, data: Path) -> Trial:
    waits = ",".join(f"{host.address}={ms}" for host, ms in zip(plan.hosts, SAMPLE_MS, strict=True))
    arguments = {"sample_ms": waits}
    if cell.task == "mnist":
        arguments["data"] = str(data)
        if not any(data.glob("train-*")):
            arguments["test_fraction"] = "0.1"
    return Trial(cell.task, arguments, cell.batch, cell.target, 0)


def _measured(cell: Cell, outcomes: dict[str, list[Outcome]]) -> list[Measurement]:
    """Each of ours beside each rival; the goal is beside the rival that is soonest there."""
    times = {name: [one.seconds for one in each] for name, each in outcomes.items()}
    best = min(RIVALS, key=lambda name: statistics.median(times[name]))
    return [
        measurement(
            f"{cell.title}, links of {cell.rate_mbit_s} Mbit/s, a worker killed each {KILL_EACH_S:.0f} s: "
            f"{ours}{_reached(outcomes[ours])} beside {rival}",
            "s",
            times[ours],
            goal=Goal(1 / SOONER, at_least=False, of_ratio=True)
            if (ours, rival) == (f"Peerloom {AUTO}", best)
            else None,
            rival=f"{rival}{_reached(outcomes[rival])}",
            rival_samples=times[rival],
        )
        for ours in OURS
        for rival in RIVALS
    ]


def _reached(outcomes: Sequence[Outcome]) -> str:
    """Nothing where all got there."""
    missing = [one for one in outcomes if not one.reached]
    if not missing:
        return ""
    ends = {one.end for one in missing if one.end}
    why = f"; {'; '.join(sorted(ends))}" if ends else ""
    return f" (not within {LIMIT_S:.0f} s in {len(missing)} of {len(outcomes)}{why})"
