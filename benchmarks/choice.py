"""Whether `--sync auto` finds the best way to synchronise, over many networks and models.

Run by `make bench-choice`, as root with ns-3. In each cell the ways that differ there run as jobs of their
own, then a job by auto, over the same links; what auto has chosen after half a minute is held against the
fastest of all. CHOICE_MINUTES bounds how long it takes: the cells are taken in an order by chance, the same
each time, so that some of them are no better than the rest. Beside auto stands what would come of one method
for all cells. Computing is emulated (see `sync`).
"""

import json
import os
import random
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.choice_cells import ALWAYS, CELLS, ChoiceCell, ways_of
from benchmarks.intervals import figure_of
from benchmarks.measure import Goal, Measurement, measurement
from benchmarks.sync import testbed_job_ms, told_in, wan_plan
from peerloom.kit.sync_grammar import parse_sync
from peerloom.testbed import Testbed

LOOK_S = 36.0  # a second change may follow the first after 30 s
TARGET_MS, LEAST_COMMITS, MOST_COMMITS, WARM_UP = 2000, 6, 80, 2
AGAIN = 2  # times that the chosen one and the fastest run once more, in turn, where they differ
MOST_STEPS = 4000
Times = dict[str, list[float]]


@dataclass
class Chosen:
    """What came of one cell: milliseconds a step by method, what auto chose, and what it expected of that."""

    cell: ChoiceCell
    method: str
    predicted_ms: float | None
    times: Times = field(default_factory=dict)

    def step_ms(self, method: str) -> float:
        """The median."""
        return figure_of("median", self.times[method])

    @property
    def best(self) -> str:
        """The fastest."""
        return min(self.times, key=self.step_ms)

    def above_best(self, method: str) -> float:
        """How much longer a step is by the method than by the fastest, in per cent."""
        return 100 * (self.step_ms(method) / self.step_ms(self.best) - 1)


def run(quick: bool) -> list[Measurement]:
    """As many cells as there is time for, a testbed at a time."""
    minutes = float(os.environ.get("CHOICE_MINUTES") or 0)
    until_s = time.monotonic() + 60 * minutes if minutes else float("inf")
    cells = list(CELLS)
    random.Random(1).shuffle(cells)
    found: list[Chosen] = []
    for cell in cells[: 1 if quick else None]:
        if time.monotonic() > until_s:
            break
        plan = wan_plan(cell.links, slots=cell.network.slots)
        with tempfile.TemporaryDirectory() as folder, Testbed(plan, Path(folder)) as testbed:
            found.append(_measured(testbed, cell))
        told = found[-1]
        times = {one: round(told.step_ms(one), 2) for one in sorted(told.times, key=told.step_ms)}
        print(f"  {cell.title}: {told.method}, {told.predicted_ms} ms predicted; {times}", flush=True)
    return figures(found, len(CELLS))


def profile(quick: bool) -> str:
    """None: each cell's figure has the methods' times beside each other."""
    return ""


def figures(found: list[Chosen], of_cells: int) -> list[Measurement]:
    """Auto beside the fastest, then one method for all, then how good predictions were, then each cell."""
    where = f"{len(found)} of {of_cells} cells"
    above = [one.above_best(one.method) for one in found]
    title = f"a step by what auto chose, above the fastest method's: {where}"
    made = [
        measurement(f"{title}, 19 of 20 of them", "%", above, statistic="p95", goal=Goal(3, at_least=False)),
        measurement(f"{title}, the worst", "%", above, statistic="p100", goal=Goal(15, at_least=False)),
    ]
    for method in ALWAYS:
        if all(method in one.times for one in found):
            alike = [one.above_best(method) for one in found]
            name = f"a step by {method} everywhere, above the fastest method's: {where}, 19 of 20 of them"
            made.append(measurement(name, "%", alike, statistic="p95"))
    errors = [
        100 * abs(one.predicted_ms / one.step_ms(one.method) - 1)
        for one in found
        if one.predicted_ms is not None
    ]
    if errors:
        name = f"error of the predicted step: {len(errors)} of {of_cells} cells"
        made.append(measurement(name, "%", errors, goal=Goal(10, at_least=False)))
    for one in found:
        name = f"a step by auto's {one.method}: {one.cell.title}"
        ours, theirs = one.times[one.method], one.times[one.best]
        made.append(measurement(name, "ms", ours, rival=f"the fastest, {one.best}", rival_samples=theirs))
    return made


def _measured(testbed: Testbed, cell: ChoiceCell) -> Chosen:
    times: Times = {}
    for method in ways_of(cell):
        times.setdefault(str(parse_sync("sync", method)), []).append(cell_job_ms(testbed, cell, method))
    told = _auto(testbed, cell)
    found = Chosen(cell, told["method"], told["predicted_ms"], times)
    if found.method not in times:
        times[found.method] = [cell_job_ms(testbed, cell, found.method)]
    if (best := found.best) != found.method:
        for _ in range(AGAIN):
            for method in (best, found.method):
                times[method].append(cell_job_ms(testbed, cell, method))
    return found


def cell_job_ms(testbed: Testbed, cell: ChoiceCell, method: str) -> float:
    """The milliseconds a step by a method."""
    commits = round(min(MOST_COMMITS, max(LEAST_COMMITS, TARGET_MS / cell.bound_ms)))
    settings = {**_settings(cell), "sync": method}
    arguments = _arguments(cell, WARM_UP + commits)
    return testbed_job_ms(testbed, {"settings": settings, "arguments": arguments, "warm_up": WARM_UP})


def _auto(testbed: Testbed, cell: ChoiceCell) -> dict[str, Any]:
    steps = min(MOST_STEPS, round(2 * 1000 * LOOK_S / cell.bound_ms))
    asked = {"settings": _settings(cell), "arguments": _arguments(cell, steps), "look_s": LOOK_S}
    found: dict[str, Any] = json.loads(told_in(testbed, "choice_job", asked))
    return found


def _settings(cell: ChoiceCell) -> Mapping[str, object]:
    everybody = {"requests": len(cell.links), "min_workers": cell.workers, "max_workers": cell.workers}
    return {**everybody, "batch_size": cell.workers, "equal_shares": True}


def _arguments(cell: ChoiceCell, steps: int) -> dict[str, str]:
    """A batch has a sample for each worker, and each takes as long as a batch computes."""
    return {
        "parameters": str(cell.model.parameters),
        "layers": str(cell.model.layers),
        "sample_ms": str(cell.model.compute_ms),
        "samples": str(cell.workers * steps),
    }
