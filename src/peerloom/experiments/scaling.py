"""Time against the number of workers, over the network and in one machine (the thesis's Figures 4 and 5).

For each number of workers n the same job runs twice, one right after the other: on n nodes with a slot
each, and on one node with n slots. Both systems are on this machine, so the network between nodes is its
loopback interface, unless a system that runs is given: a testbed's, whose nodes are behind ns-3. The batch
is n times the workload's, as DDP scripts count it, so n workers make an n-th of the steps.
"""

import contextlib
from typing import Any

from peerloom.client.client import Client
from peerloom.experiments.datasets import Data, provide
from peerloom.experiments.live import Request, job_row, live_system, running_system, scratch_folder, train
from peerloom.experiments.settings import Settings, Tell
from peerloom.experiments.workloads import WORKLOADS, Workload


def run(settings: Settings, tell: Tell) -> dict[str, Any]:
    """All workloads, 1 to `settings.workers` workers each; returns rows by workload."""
    most = settings.workers
    nodes = f"taking the nodes at {settings.over}" if settings.over else f"starting {most} nodes with 1 slot"
    tell(f"{nodes}, and starting beside them one machine with {most}")
    found: dict[str, Any] = {}
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(scratch_folder())
        lent = (folder, *settings.data.values())
        over = running_system(settings.over, most) if settings.over else live_system((1,) * most, lent)
        network = stack.enter_context(over)
        machine = stack.enter_context(live_system((most,), lent))
        for name in settings.workloads:
            workload = WORKLOADS[name]
            data = provide(name, settings.data, settings.scale, settings.seed, folder)
            rows = []
            for workers in range(1, most + 1):
                rows.append(_pair(network, machine, workload, data, workers, settings.seed))
                tell(f"{name}: {_told(rows[-1])}")
            found[name] = {"title": workload.title, "data": data.kind, "note": data.note(), "rows": rows}
    return {"workloads": found}


def _pair(
    network: Client, machine: Client, workload: Workload, data: Data, workers: int, seed: int
) -> dict[str, Any]:
    batch = workload.batch * workers
    over = job_row(train(network, workload, data, Request(workers, workers, batch_size=batch, seed=seed)))
    one = job_row(train(machine, workload, data, Request(1, workers, batch_size=batch, seed=seed)))
    return {
        "workers": workers,
        "network": over,
        "one_machine": one,
        "added_percent": added_percent(over, one),
    }


def added_percent(network: dict[str, Any], one_machine: dict[str, Any]) -> float | None:
    """By how much longer the steps took over the network, in per cent of one machine (Figure 5)."""
    if not network["training_s"] or not one_machine["training_s"]:
        return None
    ratio: float = network["training_s"] / one_machine["training_s"]
    return round(100 * (ratio - 1), 1)


def _told(row: dict[str, Any]) -> str:
    network, one = row["network"]["training_s"], row["one_machine"]["training_s"]
    return f"{row['workers']} workers: {network} s on nodes of their own, {one} s in one machine"
