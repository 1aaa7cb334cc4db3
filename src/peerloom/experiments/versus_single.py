"""The system beside one node alone, as the thesis's introduction promises.

The same job runs in turn on the nodes that a budget of 3 reaches among those with compute, with all the slots
they give, and on one node with one slot.
"""

import statistics
from typing import Any

from peerloom.experiments.datasets import provide
from peerloom.experiments.live import Request, job_row, live_system, scratch_folder, train
from peerloom.experiments.settings import Settings, Tell
from peerloom.experiments.workloads import WORKLOADS

BUDGET = 3
ROUNDS = 3


def run(settings: Settings, tell: Tell) -> dict[str, Any]:
    """`settings.rounds` pairs of jobs a workload (None: 3); returns the pairs and their median ratio."""
    slots = tuple(count for count in settings.slots if count)
    rounds = settings.rounds or ROUNDS
    # The most that a budget of 3 can reach decides the batch, so that it is the same in every round.
    most = sum(sorted(slots)[-BUDGET:])
    found: dict[str, Any] = {}
    tell(f"starting {len(slots)} nodes with {', '.join(map(str, slots))} slots")
    with (
        scratch_folder() as folder,
        live_system(slots, data_roots=(folder, *settings.data.values())) as client,
    ):
        for name in settings.workloads:
            workload = WORKLOADS[name]
            data = provide(name, settings.data, settings.scale, settings.seed, folder)
            batch, pairs = workload.batch * most, []
            for number in range(1, rounds + 1):
                together = Request(BUDGET, batch_size=batch, policy=settings.policy, seed=settings.seed)
                alone = Request(1, 1, batch_size=batch, policy=settings.policy, seed=settings.seed)
                pair = {
                    "round": number,
                    "system": job_row(train(client, workload, data, together)),
                    "one_node": job_row(train(client, workload, data, alone)),
                }
                pairs.append(pair)
                tell(f"{name}, round {number}: {_told(pair)}")
            found[name] = {
                "title": workload.title,
                "data": data.kind,
                "note": data.note(),
                "batch": batch,
                "rows": pairs,
                "median_speed_up": median_speed_up(pairs),
            }
    return {"budget": BUDGET, "workloads": found}


def median_speed_up(pairs: list[dict[str, Any]]) -> float | None:
    """How many times as fast as one node the system made its steps; None without a pair that trained."""
    ratios = [
        pair["one_node"]["training_s"] / pair["system"]["training_s"]
        for pair in pairs
        if pair["one_node"]["training_s"] and pair["system"]["training_s"]
    ]
    return round(statistics.median(ratios), 2) if ratios else None


def _told(pair: dict[str, Any]) -> str:
    system, one = pair["system"], pair["one_node"]
    return f"{system['training_s']} s on {system['workers']} workers, {one['training_s']} s on one"
