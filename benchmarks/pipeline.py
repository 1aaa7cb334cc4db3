"""How long a step of a pipeline takes, beside torch's own schedules, the ideal, and what was predicted.

Run by `make bench-pipeline`, as root with ns-3. Two stages on loopback, and four behind ns-3's links of
medium wan. Parameters, activations, gradients, optimiser and traffic are real; computing is emulated (the
task "emulated"): it is waited for, since two cores can't compute for four nodes at once. The ideal is the
step of one worker, which has it all, by the number of stages: nobody waits there. It is told twice: with the
batch as a whole, and with the pipeline's micro-batches, as each wait takes somewhat longer than it is to.
"""

import json
import os
import socket
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from benchmarks.emulated_job import job_ms
from benchmarks.measure import ROOT, Goal, Measurement, measurement
from benchmarks.pipeline_script import ZBV
from benchmarks.sync import testbed_job_ms, testbed_script_ms, wan_plan
from peerloom.client.client import Client
from peerloom.embedded import Embedded
from peerloom.kit.parallel_plan import parse_plan
from peerloom.kit.plan_model.model_layers import ModelLayer
from peerloom.kit.plan_model.pipeline_order import GPIPE, ONE_F_ONE_B, PIPELINE_ORDERS, ZB_H1, ZB_H2
from peerloom.kit.plan_model.pipeline_simulation import simulate_pipeline
from peerloom.kit.plan_model.placed_plan import PlacedPlan, PlanStage
from peerloom.kit.plan_model.plan_setting import PlanNetwork, PlanSetting, PlanSlot
from peerloom.kit.plan_model.plan_value import costed_plan
from peerloom.kit.plan_model.stage_costs import StageCosts
from peerloom.testbed import Testbed
from peerloom.worker.tasks.emulated import FORWARD_PART

# With copies of the stages those that are fastest without, where all holds and where all is far.
ORDERS, SHADOWED = tuple(PIPELINE_ORDERS), (GPIPE, ZB_H2)
TORCH_ORDERS = (ONE_F_ONE_B, GPIPE, ZB_H1, ZBV)
IDEAL, PREDICTED = "one worker's step, by the number of stages", "the prediction"
PIECED = "one worker's step in the same micro-batches, by the number of stages"
WIDTH, LAYERS, MICRO_BATCHES, WARM_UP = 256, 8, 8, 2
_LIMIT_S = 600.0


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
                taken[_torch(order)].append(_local_script_ms(cell, _script(cell, order, steps)))
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
    return {
        "parameters": str(LAYERS * WIDTH * WIDTH),
        "layers": str(LAYERS),
        "sample_ms": str(cell.compute_ms / cell.batch),
        "samples": str(cell.batch * (WARM_UP + steps)),
    }


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


def _local_script_ms(cell: Cell, asked: dict[str, object]) -> float:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    common = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": str(cell.stages)}
    command = [sys.executable, "-m", "benchmarks.pipeline_script", json.dumps(asked)]
    members = [
        subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            cwd=ROOT,
            env={**os.environ, **common, "RANK": str(rank), "OMP_NUM_THREADS": "1"},
        )
        for rank in range(cell.stages)
    ]
    told = [member.communicate(timeout=_LIMIT_S)[0] for member in members]
    if any(member.returncode for member in members):
        raise SystemExit(f"torch's pipeline ended with {[member.returncode for member in members]}")
    return float(told[0])


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
    how = what.partition("order=")[2] or what
    name = f"{cell.title}: a step by {how} beside {rival}"
    return measurement(name, "ms", ours, goal=goal, rival=rival, rival_samples=others)


def _predicted_ms(cell: Cell, plan: str) -> float:
    """A step as `peerloom plan explain` would predict it, of the same layers and links."""
    layer_s = cell.compute_ms / 1000 / cell.batch / LAYERS
    layer = ModelLayer("", WIDTH * WIDTH, FORWARD_PART * layer_s, (1 - FORWARD_PART) * layer_s, 4 * WIDTH, 0)
    bits_per_s = cell.rate_mbps * 1e6 or 80e9
    network = PlanNetwork.even(cell.stages, bits_per_s, 2 * cell.delay_ms / 1000)
    slots = tuple(PlanSlot(str(number), 1, 1e12) for number in range(cell.stages))
    setting = PlanSetting((layer,) * LAYERS, slots, network, cell.batch)
    each = LAYERS // cell.stages
    stages = tuple(PlanStage(number * each, (number + 1) * each, (number,)) for number in range(cell.stages))
    order = parse_plan("plan", plan).order
    costed = costed_plan(PlacedPlan(stages, MICRO_BATCHES, order), setting, StageCosts(setting))
    assert costed is not None, "each slot has samples"
    return 1000 * simulate_pipeline(costed.stages, costed.boundaries, MICRO_BATCHES, order).step_s
