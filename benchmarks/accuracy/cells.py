"""The races of each cell, and what is told of them."""

import os
import statistics
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from benchmarks.accuracy.race import KILL_EACH_S, Outcome, run_race
from benchmarks.accuracy.racers import Hivemind, Ours, Racer, Torchft, Torchrun
from benchmarks.accuracy.trial import OUTER_MOMENTUM, OUTER_RATE, PERIOD, Trial
from benchmarks.measure import Goal, Measurement, let_nodes_import, measurement
from benchmarks.mnist_files import mnist_arguments
from benchmarks.sync import wan_plan
from peerloom.testbed import Plan, Testbed

LINKS_MS = (5, 10, 15, 20)  # of each host, one way
SAMPLE_MS = (3, 3, 4, 6)
SEEDS = 5
LIMIT_S = 120.0
SOONER = 5
SELDOM = f"period={PERIOD},outer=nesterov:{OUTER_RATE}:{OUTER_MOMENTUM}"
AUTO, FIXED, EXACT = "auto,quality=relaxed", f"{SELDOM},codec=int4", "wfbp-a2a"
Make = Callable[[Testbed, Trial, Path], Racer]
OURS: dict[str, Make] = {
    f"Peerloom {AUTO}": partial(Ours, sync=AUTO),
    f"Peerloom {FIXED}": partial(Ours, sync=FIXED),
    # What is left of a lead where a batch's parts don't follow speeds.
    f"Peerloom {FIXED}, equal parts": partial(Ours, sync=FIXED, equal_shares=True),
    f"Peerloom {EXACT}": partial(Ours, sync=EXACT),
}
RIVALS: dict[str, Make] = {
    "torchrun DDP": Torchrun,
    "torchft-nightly DDP": partial(Torchft, way="ddp"),
    f"torchft-nightly DiLoCo, {PERIOD} batches": partial(Torchft, way="diloco"),
    f"hivemind, means of {PERIOD} batches in 16 bits": Hivemind,
}


@dataclass(frozen=True)
class Cell:
    """A model to a `target`, a part of 1, over links of so many Mbit/s."""

    name: str
    task: str
    title: str
    batch: int
    target: float
    rate_mbit_s: int


CELLS = (
    Cell("mnist-10", "mnist", "MNIST network to 96 %", 64, 0.96, 10),
    Cell("mnist-50", "mnist", "MNIST network to 96 %", 64, 0.96, 50),
    Cell("text-50", "text", "text transformer to 55 % of the next bytes", 32, 0.55, 50),
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
    data = mnist_arguments() if cell.task == "mnist" else {}
    with tempfile.TemporaryDirectory() as state, _testbed(cell, data.get("data", ""), Path(state)) as testbed:
        trial = _trial(cell, testbed.plan, data)
        for seed in range(1, 2 if quick else SEEDS + 1):
            for name, make in {**OURS, **RIVALS}.items():
                with tempfile.TemporaryDirectory(prefix="race-") as folder:
                    racer = make(testbed, replace(trial, seed=seed), Path(folder))
                    outcomes[name].append(run_race(racer, 60.0 if quick else LIMIT_S))
                print(f"  {cell.name}, seed {seed}, {name}: {outcomes[name][-1]}", flush=True)
    return list(_measured(cell, outcomes))


def _testbed(cell: Cell, folder: str, state: Path) -> Testbed:
    links = [(f"{cell.rate_mbit_s}Mbps", f"{delay}ms") for delay in LINKS_MS]
    let_nodes_import()
    return Testbed(wan_plan(links, {"node": {"data_root": folder}} if folder else {}), state)


def _trial(cell: Cell, plan: Plan, data: dict[str, str]) -> Trial:
    waits = ",".join(f"{host.address}={ms}" for host, ms in zip(plan.hosts, SAMPLE_MS, strict=True))
    return Trial(cell.task, {"sample_ms": waits, **data}, cell.batch, cell.target, 0)


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
