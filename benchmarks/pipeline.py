"""How long a step of a pipeline takes, beside torch's own schedules, the ideal, and what was predicted.

Run by `make bench-pipeline`, as root with ns-3. Two stages on loopback, and four behind ns-3's links of
medium wan. Parameters, activations, gradients, optimiser and traffic are real; computing is emulated (the
task "emulated"): it is waited for, since two cores can't compute for four nodes at once. The ideal is the
step of one worker, which has it all, by the number of stages: nobody waits there. It is told twice: with the
batch as a whole, and with the pipeline's micro-batches, as each wait takes somewhat longer than it is to.
"""

import tempfile
from dataclasses import dataclass
from pathlib import Path

from benchmarks.emulated_job import job_ms
from benchmarks.even_layers import LAYERS, PREDICTED, WARM_UP, predicted_ms, step_beside, task_arguments
from benchmarks.local_script import local_script_ms
from benchmarks.measure import Goal, Measurement
from benchmarks.pipeline_script import ZBV
from benchmarks.sync import testbed_job_ms, testbed_script_ms, wan_plan
from peerloom.client.client import Client
from peerloom.embedded import Embedded
from peerloom.kit.parallel_plan import parse_plan
from peerloom.kit.plan_model.pipeline_order import GPIPE, ONE_F_ONE_B, PIPELINE_ORDERS, ZB_H1, ZB_H2
from peerloom.testbed import Testbed

# Those that are fastest over slow links are tried with copies of the stages, and shorter activations, too.
ORDERS, SHADOWED = tuple(PIPELINE_ORDERS), (GPIPE, ZB_H2)
TORCH_ORDERS = (ONE_F_ONE_B, GPIPE, ZB_H1, ZBV)
IDEAL = "one worker's step, by the number of stages"
PIECED = "one worker's step in the same micro-batches, by the number of stages"
MICRO_BATCHES = 8


@dataclass(frozen=True)
class Cell:
    """A network for so many `stages`; a micro-batch has `samples`, and a batch takes `compute_ms` in all."""

    title: str
    stages: int
    samples: int
    compute_ms: float
    rate_mbps: float
    delay_ms: float
    beside_torch: Goal
    of_ideal: Goal | None

    @property
    def batch(self) -> int:
        """Samples of a step."""
        return self.samples * MICRO_BATCHES


LOOPBACK = Cell(
    "2 stages, 200 ms of computing, loopback",
    stages=2,
    samples=16,
    compute_ms=200,
    rate_mbps=0,
    delay_ms=0,
    beside_torch=Goal(1 / 0.95, at_least=False, of_ratio=True),
    of_ideal=Goal(1 / 0.85, at_least=False, of_ratio=True),
)
NARROW = Cell(
    "4 stages, 1 s of computing, 50 Mbit/s, 1 ms, messages of 328 KB",
    stages=4,
    samples=320,
    compute_ms=1000,
    rate_mbps=50,
    delay_ms=1,
    beside_torch=Goal(1 / 1.3, at_least=False, of_ratio=True),
    of_ideal=None,
)


def run(quick: bool) -> list[Measurement]:
    """Each cell's plans in turn, with the rivals and the ideal among them."""
    rounds, steps = (1, 2) if quick else (5, 8)
    return [*_on_loopback(rounds, steps), *_over_wan(rounds, steps)]


def profile(quick: bool) -> str:
    """None: each job's own record splits its steps into computing and communication."""
    return ""


def _on_loopback(rounds: int, steps: int) -> list[Measurement]:
    cell, plans = LOOPBACK, _exact_plans(LOOPBACK)
    taken = _empty(cell, plans)
    slots = (1,) * cell.stages
    with (
        tempfile.TemporaryDirectory() as folder,
        Embedded(Path(folder) / "state", slots=slots, log_level="error") as system,
        Client(system.address) as client,
    ):
        for _ in range(rounds):
            for plan in plans:
                taken[plan].append(job_ms(client, _job(cell, plan, cell.stages, steps)))
            for order in TORCH_ORDERS:
                taken[_torch(order)].append(
                    local_script_ms("pipeline_script", cell.stages, _script(cell, order, steps))
                )
            for ideal, job in _alone(cell, steps).items():
                taken[ideal].append(job_ms(client, job) / cell.stages)
    return _compared(cell, taken)


def _over_wan(rounds: int, steps: int) -> list[Measurement]:
    cell = NARROW
    plans = [
        *_exact_plans(cell),
        f"{_plan(cell, GPIPE)},activations=bf16",
        *(f"{_plan(cell, order)},activations=int8" for order in SHADOWED),
    ]
    taken = _empty(cell, plans)
    plan_of_hosts = wan_plan([(f"{cell.rate_mbps:g}Mbps", f"{cell.delay_ms:g}ms")] * cell.stages)
    with tempfile.TemporaryDirectory() as folder, Testbed(plan_of_hosts, Path(folder)) as testbed:
        for _ in range(rounds):
            for plan in plans:
                taken[plan].append(testbed_job_ms(testbed, _job(cell, plan, cell.stages, steps)))
            for order in TORCH_ORDERS:
                taken[_torch(order)].append(
                    testbed_script_ms(testbed, "pipeline_script", _script(cell, order, steps))
                )
            for ideal, job in _alone(cell, steps).items():
                taken[ideal].append(testbed_job_ms(testbed, job) / cell.stages)
    return _compared(cell, taken)


def _plan(cell: Cell, order: str) -> str:
    starts = ":".join(str(stage * LAYERS // cell.stages) for stage in range(1, cell.stages))
    even = f"pipeline={starts}{':' if cell.stages == 2 else ''},micro_batches={MICRO_BATCHES}"
    return f"{even},order={order}"


def _exact_plans(cell: Cell) -> list[str]:
    """Without a copy of each stage, as the rivals are, and with one, which is sent with each step."""
    plain = [f"{_plan(cell, order)},shadow=off" for order in ORDERS]
    return plain + [_plan(cell, order) for order in SHADOWED]


def _empty(cell: Cell, plans: list[str]) -> dict[str, list[float]]:
    return {name: [] for name in (*plans, *map(_torch, TORCH_ORDERS), IDEAL, PIECED)}


def _torch(order: str) -> str:
    return f"torch.distributed.pipelining, {order}"


def _arguments(cell: Cell, steps: int) -> dict[str, str]:
    return task_arguments(cell.batch, cell.compute_ms, steps)


def _job(cell: Cell, plan: str, workers: int, steps: int) -> dict[str, object]:
    settings = {"requests": workers, "batch_size": cell.batch, "plan": plan}
    if workers == 1:
        settings |= {"max_workers": 1}
    return {"settings": settings, "arguments": _arguments(cell, steps), "warm_up": WARM_UP}


def _alone(cell: Cell, steps: int) -> dict[str, dict[str, object]]:
    """The jobs of one worker, by what they are the ideal of."""
    whole, pieced = (_job(cell, "data", 1, steps) for _ in range(2))
    pieced["arguments"] = {**_arguments(cell, steps), "micro_batch": str(cell.samples)}
    return {IDEAL: whole, PIECED: pieced}


def _script(cell: Cell, order: str, steps: int) -> dict[str, object]:
    how = {"batch": cell.batch, "micro_batches": MICRO_BATCHES, "order": order, "warm_up": WARM_UP}
    return {**how, "arguments": _arguments(cell, steps)}


def _compared(cell: Cell, taken: dict[str, list[float]]) -> list[Measurement]:
    best = min((_torch(order) for order in TORCH_ORDERS), key=lambda name: sum(taken[name]))
    ideal, found = taken[IDEAL], list[Measurement]()
    for plan, ours in taken.items():
        if plan not in (IDEAL, PIECED, *map(_torch, TORCH_ORDERS)):
            exact = "activations" not in plan
            goal = cell.beside_torch if exact else None
            found.append(_of(cell, plan, ours, best, taken[best], goal))
            for name in (IDEAL, PIECED):
                found.append(_of(cell, plan, ours, name, taken[name], cell.of_ideal if exact else None))
            if exact:
                found.append(_of(cell, plan, ours, PREDICTED, [_predicted_ms(cell, plan)] * len(ours), None))
    for order in TORCH_ORDERS:
        found.append(_of(cell, _torch(order), taken[_torch(order)], IDEAL, ideal, None))
    return found


def _of(
    cell: Cell, what: str, ours: list[float], rival: str, others: list[float], goal: Goal | None
) -> Measurement:
    return step_beside(cell.title, what.partition("order=")[2] or what, ours, rival, others, goal)


def _predicted_ms(cell: Cell, plan: str) -> float:
    order, bits_per_s = parse_plan("plan", plan).order, cell.rate_mbps * 1e6 or 80e9
    way = (cell.batch, cell.compute_ms, bits_per_s, cell.delay_ms)
    return predicted_ms(*way, cell.stages, MICRO_BATCHES, order)
