"""Many simulations, side by side: each policy and budget over the same seeds, beside the oracle."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from peerloom.errors import InvalidArgumentError
from peerloom.simulator.figures import mean_with_interval
from peerloom.simulator.runs import MOST_HOSTS_WITH_HITS, Key, Run, runs_of_seeds
from peerloom.simulator.scenario import MAX_SEEDS, Scenario
from peerloom.simulator.simulation import ORACLE, check

REGRET_POINTS = 50
MAX_PROCESSES = 256


@dataclass(frozen=True)
class Estimate:
    """A mean over seeds, half the width of its 95 % confidence interval (None: one seed), and each value."""

    mean: float | None
    half_width: float | None
    values: list[float | None]


@dataclass(frozen=True)
class PolicyReport:
    """One policy with one budget. `figures` by the names in figures.UNITS, and `regret`: the part of the
    oracle's useful work that it missed.

    `hits` counts, for each host (by its place in the population) that gave compute, the rounds in which it
    did, of all seeds; None above 1,000 hosts. `regret_over_rounds` is the mean regret up to each of
    `regret_rounds`.
    """

    policy: str
    budget: int
    figures: dict[str, Estimate]
    hits: dict[str, int] | None
    regret_rounds: list[int]
    regret_over_rounds: list[float | None]


@dataclass(frozen=True)
class Report:
    """Everything that a rerun with the same arguments gives again, byte by byte."""

    population: str
    nodes: int
    rounds: int
    seeds: list[int]
    interval_s: float
    observations: float
    reports: list[PolicyReport]


def compare(
    scenario: Scenario,
    policies: Sequence[str],
    budgets: Sequence[int],
    seeds: int,
    tell: Callable[[str], None] = lambda _: None,
    processes: int = 1,
) -> Report:
    """Runs all of them, the oracle too; `tell` hears of each seed. The figures don't depend on `processes`.

    Raises what `simulate` does, and for no seeds or policy, before anything starts.
    """
    if not 1 <= seeds <= MAX_SEEDS:
        raise InvalidArgumentError.of_field("seeds", seeds, f"1 to {MAX_SEEDS}")
    if not policies or not budgets:
        raise InvalidArgumentError("a comparison needs at least one policy and one budget.")
    if not 1 <= processes <= MAX_PROCESSES:
        raise InvalidArgumentError.of_field("processes", processes, f"1 to {MAX_PROCESSES}")
    for budget in budgets:
        for policy in policies:
            check(replace(scenario, budget=budget, policy=policy))
    numbers = list(range(scenario.seed, scenario.seed + seeds))
    all_policies = list(dict.fromkeys([*policies, ORACLE]))
    runs: list[dict[Key, Run]] = []
    for found in runs_of_seeds(scenario, all_policies, list(budgets), numbers, processes):
        runs.append(found)
        tell(f"seed {numbers[len(runs) - 1]}, {len(runs):,} of {seeds:,}: {', '.join(all_policies)}")
    reports = [
        _report(policy, budget, [one[policy, budget] for one in runs], [one[ORACLE, budget] for one in runs])
        for budget in budgets
        for policy in policies
    ]
    nodes = runs[0][ORACLE, budgets[0]].nodes
    name = scenario.trace.name if scenario.trace else scenario.population
    return Report(name, nodes, scenario.rounds, numbers, scenario.interval_s, scenario.observations, reports)


def _report(policy: str, budget: int, runs: list[Run], best: list[Run]) -> PolicyReport:
    names = list(runs[0].figures)
    columns = {name: [run.figures[name] for run in runs] for name in names}
    columns["regret"] = [
        1 - run.figures["useful_gflops"] / top.figures["useful_gflops"]
        if top.figures["useful_gflops"]
        else math.nan
        for run, top in zip(runs, best, strict=True)
    ]
    count = len(runs[0].useful)
    rounds = sorted({max(1, round(count * point / REGRET_POINTS)) for point in range(1, REGRET_POINTS + 1)})
    total: dict[int, int] = {}
    for run in runs:
        for host, hits in run.hits.items():
            total[host] = total.get(host, 0) + hits
    return PolicyReport(
        policy,
        budget,
        {name: _estimate(values) for name, values in columns.items()},
        {str(host): total[host] for host in sorted(total)} if runs[0].nodes <= MOST_HOSTS_WITH_HITS else None,
        rounds,
        [_number(_regret(runs, best, upto)) for upto in rounds],
    )


def _regret(runs: list[Run], best: list[Run], upto: int) -> float:
    mine, top = sum(sum(r.useful[:upto]) for r in runs), sum(sum(r.useful[:upto]) for r in best)
    return 1 - mine / top if top else math.nan


def _estimate(values: Sequence[float]) -> Estimate:
    mean, half_width = mean_with_interval(values)
    return Estimate(_number(mean), _number(half_width), [_number(value) for value in values])


def _number(value: float) -> float | None:
    return None if math.isnan(value) else float(f"{value:.6g}")
