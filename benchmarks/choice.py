"""Whether `--sync auto` finds the best way to synchronise, over many networks and models.

Run by `make bench-choice`, as root with ns-3. In each cell a job by auto runs, and then the ways that
differ there as jobs of their own, over the same links (`choice_trials`); what auto uses at the end of a
minute is held against the fastest of all. CHOICE_MINUTES bounds how long a run takes: the cells are taken
in an order by chance, the same each time, so that some of them are no better than the rest, and the next
run goes on where this one ends (`choice_kept`). Beside auto stands what would come of one method for all
cells. Computing is emulated (see `sync`).
"""

import json
import os
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from benchmarks.choice_cells import ALWAYS, CELLS, ChoiceCell, by_chance
from benchmarks.choice_kept import in_turn, keep_cell, kept_cells
from benchmarks.choice_trials import Trials
from benchmarks.intervals import figure_of
from benchmarks.measure import Goal, Measurement, measurement
from benchmarks.sync import told_in, wan_plan
from peerloom.testbed import Testbed

LIMIT_S = 1800.0  # of one cell


@dataclass
class Chosen:
    """What came of one cell."""

    cell: ChoiceCell
    trials: Trials

    @property
    def method(self) -> str:
        """What auto chose."""
        return self.trials.method

    def times(self, method: str) -> list[float]:
        """Those that count: where it was compared again, these."""
        return self.trials.again.get(method) or self.trials.times[method]

    def step_ms(self, method: str) -> float:
        """The median."""
        return figure_of("median", self.times(method))

    @property
    def best(self) -> str:
        """The fastest, of those that were compared again where some were."""
        return min(self.trials.again or self.trials.times, key=self.step_ms)

    def above_best(self, method: str) -> float:
        """How much longer a step is by the method than by the fastest, in per cent."""
        return 100 * (self.step_ms(method) / self.step_ms(self.best) - 1)


def run(quick: bool) -> list[Measurement]:
    """As many cells as there is time for, a testbed at a time; the figures are of all that are kept."""
    cells = by_chance()
    if quick:
        return figures([Chosen(cells[-1], _measured(cells[-1]))], len(CELLS))
    minutes = float(os.environ.get("CHOICE_MINUTES") or 0)
    until_s = time.monotonic() + 60 * minutes if minutes else float("inf")
    for cell in in_turn(cells, kept_cells()):
        if time.monotonic() > until_s:
            break
        keep_cell(cell, _measured(cell))
    kept = kept_cells()
    found = [Chosen(cell, kept[cell.title].trials) for cell in cells if cell.title in kept]
    return figures(found, len(CELLS))


def _measured(cell: ChoiceCell) -> Trials:
    plan = wan_plan(cell.links, slots=cell.network.slots)
    with tempfile.TemporaryDirectory() as folder, Testbed(plan, Path(folder)) as testbed:
        trials = Trials(**json.loads(told_in(testbed, "choice_trials", {"cell": cell.title}, LIMIT_S)))
    print(f"  {cell.title}: {trials}", flush=True)
    return trials


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
        if all(method in one.trials.times for one in found):
            alike = [one.above_best(method) for one in found]
            name = f"a step by {method} everywhere, above the fastest method's: {where}, 19 of 20 of them"
            made.append(measurement(name, "%", alike, statistic="p95"))
    errors = [
        100 * abs(one.trials.predicted_ms / one.step_ms(one.method) - 1)
        for one in found
        if one.trials.predicted_ms is not None
    ]
    if errors:
        name = f"error of the predicted step: {len(errors)} of {of_cells} cells"
        made.append(measurement(name, "%", errors, goal=Goal(10, at_least=False)))
    for one in found:
        name = f"a step by auto's {one.method}: {one.cell.title}"
        ours, theirs = one.times(one.method), one.times(one.best)
        made.append(measurement(name, "ms", ours, rival=f"the fastest, {one.best}", rival_samples=theirs))
    return made
