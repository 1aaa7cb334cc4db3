"""How long a step of a model in shards takes, beside torch's FSDP, plan data, the ideal and the prediction.

Run by `make bench-sharded`, as root with ns-3: four workers behind ns-3's links of medium wan. Parameters,
gradients, optimiser and traffic are real; computing is emulated (the task "emulated"): it is waited for. Each
worker computes a quarter of a batch with all layers. The ideal is the step of one worker, which has it all,
by their number: nothing travels there.
"""

import tempfile
from dataclasses import dataclass
from pathlib import Path

from benchmarks.even_layers import PREDICTED, WARM_UP, predicted_ms, step_beside, task_arguments
from benchmarks.measure import Goal, Measurement
from benchmarks.sync import testbed_job_ms, testbed_script_ms, wan_plan
from peerloom.kit.plan_model.pipeline_order import GPIPE
from peerloom.testbed import Testbed

WORKERS, BATCH, COMPUTE_MS = 4, 64, 1000.0
FSDP, IDEAL = "torch's FSDP", "one worker's step, by the number of workers"
SHARDED = f"sharded={WORKERS}"
UNSHADOWED, DATA = f"{SHARDED},shadow=off", "data"
BESIDE_FSDP = Goal(1.0, at_least=False, of_ratio=True)


@dataclass(frozen=True)
class Cell:
    """A network."""

    rate_mbps: float
    delay_ms: float = 1.0

    @property
    def title(self) -> str:
        """What is told of it."""
        return f"4 workers, 2.1 MB of parameters, 1 s of computing, {self.rate_mbps:g} Mbit/s"


CELLS = (Cell(50), Cell(200))


def run(quick: bool) -> list[Measurement]:
    """Each cell's plans in turn, with the rival and the ideal among them."""
    rounds, steps = (1, 2) if quick else (5, 8)
    return [found for cell in CELLS for found in _compared(cell, _taken(cell, rounds, steps))]


def profile(quick: bool) -> str:
    """None: each job's own record splits its steps into computing and communication."""
    return ""


def _taken(cell: Cell, rounds: int, steps: int) -> dict[str, list[float]]:
    taken: dict[str, list[float]] = {name: [] for name in (UNSHADOWED, SHARDED, DATA, FSDP, IDEAL)}
    hosts = wan_plan([(f"{cell.rate_mbps:g}Mbps", f"{cell.delay_ms:g}ms")] * WORKERS)
    with tempfile.TemporaryDirectory() as folder, Testbed(hosts, Path(folder)) as testbed:
        for _ in range(rounds):
            for plan in (UNSHADOWED, SHARDED, DATA):
                taken[plan].append(testbed_job_ms(testbed, _job(plan, WORKERS, steps)))
            asked = {
                "batch": BATCH,
                "warm_up": WARM_UP,
                "arguments": task_arguments(BATCH, COMPUTE_MS, steps),
            }
            taken[FSDP].append(testbed_script_ms(testbed, "fsdp_script", asked))
            taken[IDEAL].append(testbed_job_ms(testbed, _job(DATA, 1, steps)) / WORKERS)
    return taken


def _job(plan: str, workers: int, steps: int) -> dict[str, object]:
    settings: dict[str, object] = {"requests": workers, "batch_size": BATCH, "plan": plan}
    if plan == DATA:
        settings |= {"min_workers": workers, "max_workers": workers}
    return {"settings": settings, "arguments": task_arguments(BATCH, COMPUTE_MS, steps), "warm_up": WARM_UP}


def _compared(cell: Cell, taken: dict[str, list[float]]) -> list[Measurement]:
    ours, found = taken[UNSHADOWED], list[Measurement]()
    predicted = [_predicted_ms(cell)] * len(ours)
    found.append(step_beside(cell.title, UNSHADOWED, ours, FSDP, taken[FSDP], BESIDE_FSDP))
    found.append(step_beside(cell.title, UNSHADOWED, ours, PREDICTED, predicted, None))
    for plan in (UNSHADOWED, SHARDED, FSDP):
        for rival in (DATA, IDEAL):
            found.append(step_beside(cell.title, plan, taken[plan], rival, taken[rival], None))
    return found


def _predicted_ms(cell: Cell) -> float:
    way = (BATCH, COMPUTE_MS, cell.rate_mbps * 1e6, cell.delay_ms)
    return predicted_ms(*way, WORKERS, WORKERS, GPIPE, is_sharded=True)
