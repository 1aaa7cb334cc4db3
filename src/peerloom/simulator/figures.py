"""A simulation's rounds as a few figures, and those of many seeds as means with confidence intervals."""

import math
import statistics
from collections.abc import Sequence

from peerloom.simulator.hosts import ATTACKERS
from peerloom.simulator.populations import Population
from peerloom.simulator.rounds import Round

# Student's t for 95 % on both sides, by degrees of freedom; beyond the table the normal's.
_T: tuple[float, ...] = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228)
_T += (2.201, 2.179, 2.160, 2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086)
_T += (2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042)
_NORMAL = 1.960

UNITS = {
    "reached": "rounds of all",
    "requests": "nodes asked a round",
    "interruptions": "a job that reached compute",
    "interruptions_node_hours": "in 100 h of nodes held",
    "useful_gflops": "GFLOP/s a requested slot, finished jobs' work only",
    "of_bound": "of what no choice could exceed",
    "finished": "jobs of all",
    "finish_s": "s, median of the finished",
    "newcomer_share": "requests of all",
    "unfairness": "Gini of requests over nodes, 0 to 1",
    "attacker_requests": "requests of all",
    "attacker_work": "work of all",
    "turned_requests": "requests of all, to nodes that had turned bad",
    "found_out_requests": "requests of all, to those that had failed 20 times since",
}


def figures(population: Population, rounds: Sequence[Round]) -> dict[str, float]:
    """The figures of one simulation, by the names in UNITS; NaN where there was nothing to measure."""
    reached = [one for one in rounds if one.reached]
    requests = sum(len(one.asked) for one in rounds)
    finished = [one.finish_s for one in rounds if one.finish_s is not None]
    asked = [0] * len(population.hosts)
    for one in rounds:
        for index in one.asked:
            asked[index] += 1
    bad = {index for index, host in enumerate(population.hosts) if host.behaviour in ATTACKERS}
    work = sum(done for one in rounds for _, done in one.work_of)
    held_h = sum(one.held_s for one in rounds) / 3600
    useful, bound = sum(one.useful_gflops for one in rounds), sum(one.bound_gflops for one in rounds)
    theirs = sum(done for one in rounds for index, done in one.work_of if index in bad)
    return {
        "reached": len(reached) / len(rounds),
        "requests": requests / len(rounds),
        "interruptions": _mean([one.interruptions for one in reached]),
        "interruptions_node_hours": 100 * _part(sum(one.interruptions for one in rounds), held_h),
        "useful_gflops": useful / len(rounds),
        "of_bound": _part(useful, bound),
        "finished": len(finished) / len(rounds),
        "finish_s": statistics.median(finished) if finished else math.nan,
        "newcomer_share": _part(sum(one.newcomers for one in rounds), requests),
        "unfairness": gini(asked),
        "attacker_requests": _part(sum(one.attackers for one in rounds), requests),
        "attacker_work": _part(theirs, work),
        "turned_requests": _part(sum(one.turned for one in rounds), requests),
        "found_out_requests": _part(sum(one.found_out for one in rounds), requests),
    }


def gini(values: Sequence[float]) -> float:
    """How unequal the values (0 or more) are: 0 all equal, near 1 one has all. C. Gini, 1912."""
    total, count = sum(values), len(values)
    if total == 0:
        return 0.0
    ranked = sum(rank * value for rank, value in enumerate(sorted(values), 1))
    return 2 * ranked / (count * total) - (count + 1) / count


def mean_with_interval(values: Sequence[float]) -> tuple[float, float]:
    """The mean and half the width of its 95 % confidence interval (Student's t); NaN values are left out.

    With a single value nothing is known of the width: NaN.
    """
    known = [value for value in values if not math.isnan(value)]
    if len(known) < 2:
        return (known[0] if known else math.nan), math.nan
    quantile = _T[len(known) - 2] if len(known) - 2 < len(_T) else _NORMAL
    return statistics.fmean(known), quantile * statistics.stdev(known) / math.sqrt(len(known))


def _mean(values: Sequence[float]) -> float:
    return statistics.fmean(values) if values else math.nan


def _part(of: float, total: float) -> float:
    return of / total if total else 0.0
