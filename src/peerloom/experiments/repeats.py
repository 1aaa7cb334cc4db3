"""Figure 6 a thousand times: the same rounds in the simulator, for the error bars of a few live runs.

The simulator has the thesis's network (its nodes are turned off and on, which live ones aren't), the
selector's own rules and policies, and a seed for each repeat.
"""

import os
import statistics
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from peerloom.experiments import thesis
from peerloom.simulator import Run, runs_of_seeds, usual

POPULATION = "thesis20"
_INNER_PERCENT = 95


def repeats(
    budgets: Sequence[int], rounds: int, policy: str, first_seed: int, count: int
) -> list[dict[str, Any]]:
    """A row for each budget: of `count` repeats the rounds that reached compute, and hits by node's name."""
    scenario = replace(usual(POPULATION), rounds=rounds)
    seeds = range(first_seed, first_seed + count)
    found = list(runs_of_seeds(scenario, [policy], budgets, seeds, os.cpu_count() or 1))
    return [_row(budget, rounds, [one[policy, budget] for one in found]) for budget in budgets]


def _row(budget: int, rounds: int, runs: Sequence[Run]) -> dict[str, Any]:
    return {
        "budget": budget,
        "reached": spread([rounds * run.figures["reached"] for run in runs]),
        "hits": {f"node-{node}": spread([run.hits.get(node, 0) for run in runs]) for node in thesis.GPUS},
    }


def spread(values: Sequence[float]) -> dict[str, float]:
    """The mean, and what lies between `low` and `high` in 95 of 100 repeats."""
    ordered = sorted(values)
    beyond = round(len(ordered) * (100 - _INNER_PERCENT) / 200)
    return {
        "mean": round(statistics.fmean(ordered), 2),
        "low": round(ordered[beyond], 2),
        "high": round(ordered[-1 - beyond], 2),
    }
