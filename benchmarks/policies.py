"""What each policy is worth: the goals of choosing well, over 30 seeds.

Two states of knowledge, because they answer different questions. "After 20 observations a node": everybody
was asked 20 times by chance before the first round that counts, so policies are compared with equal
knowledge. "From nothing": 500 rounds in which learning itself costs something. "Other seeds": the goals
again on seeds that no choice was made by. The same seeds give the same figures on every machine.
"""

import os
import statistics
from collections.abc import Sequence
from dataclasses import replace

from benchmarks.flaws import flaw_figures
from benchmarks.measure import Goal, Measurement
from peerloom.simulator import PolicyReport, Scenario, compare, usual

VOLUNTEERS, HOSTILE = "volunteers-1000", "hostile-1000"
MAIN = ("random", "thesis", "survival")
RIVALS = ("random", "round-robin", "thesis", "thesis-fixed", "beta", "pso", "aco", "survival")
OTHER_SEEDS_FROM = 100_001
PROCESSES = os.cpu_count() or 1


def run(quick: bool) -> list[Measurement]:
    """About ten minutes of one core, shared by all cores."""
    seeds, thesis_seeds = (2, 3) if quick else (30, 200)
    rounds, learning = (20, 20) if quick else (400, 500)
    known = "after 20 observations a node"
    return [
        *_thesis_rounds(thesis_seeds),
        *_compared(known, _scenario(VOLUNTEERS, rounds, 20.0), RIVALS, seeds),
        *_compared(
            f"{known}, other seeds", _scenario(VOLUNTEERS, rounds, 20.0, OTHER_SEEDS_FROM), MAIN, seeds
        ),
        *_compared("from nothing", _scenario(VOLUNTEERS, learning, 0.0), MAIN, seeds),
        *_attacked(_scenario(HOSTILE, learning, 0.0), seeds),
        *flaw_figures(),
    ]


def profile(quick: bool) -> str:
    """Nothing to add: a goal missed here is missed by a policy, not by slow code."""
    return ""


def _scenario(population: str, rounds: int, observations: float, seed: int = 1) -> Scenario:
    return replace(usual(population), rounds=rounds, observations=observations, seed=seed)


def _values(report: PolicyReport, name: str) -> list[float]:
    return [value for value in report.figures[name].values if value is not None]


def _thesis_rounds(seeds: int) -> list[Measurement]:
    found, budgets = [], (2, 3, 4, 6, 8)
    reports = compare(usual("thesis20"), ["random", "thesis"], budgets, seeds, processes=PROCESSES).reports
    for number, budget in enumerate(budgets):
        pair = reports[2 * number : 2 * number + 2]
        chance, thesis = ([50 * value for value in _values(one, "reached")] for one in pair)
        found.append(
            Measurement(
                f"thesis, 20 nodes, budget {budget}: rounds of 50 that reached compute, mean of seeds",
                float(f"{statistics.fmean(thesis):.5g}"),
                "rounds",
                "at least 46 rounds" if budget == 3 else "",
                statistics.fmean(thesis) >= 46 if budget == 3 else None,
                "random",
                float(f"{statistics.fmean(chance):.5g}"),
                float(f"{statistics.fmean(thesis) / statistics.fmean(chance):.5g}"),
                thesis,
            )
        )
    return found


def _compared(state: str, scenario: Scenario, policies: Sequence[str], seeds: int) -> list[Measurement]:
    reports = {
        one.policy: one
        for one in compare(scenario, [*policies, "oracle"], [4], seeds, processes=PROCESSES).reports
    }
    found = []
    for rival, limit in (("random", 0.5), ("thesis", 0.75)):
        found.append(
            _means(
                f"{state}: interruptions a job, survival against {rival}",
                "interruptions",
                _values(reports["survival"], "interruptions"),
                rival,
                _values(reports[rival], "interruptions"),
                Goal(limit, at_least=False, of_ratio=True),
            )
        )
    goal = Goal(0.95, at_least=True, of_ratio=True) if scenario.observations >= 20 else None
    for policy in policies:
        found.append(
            _means(
                f"{state}: useful work a requested slot, {policy}",
                "GFLOP/s",
                _values(reports[policy], "useful_gflops"),
                "oracle",
                _values(reports["oracle"], "useful_gflops"),
                goal if policy == "survival" else None,
            )
        )
        for name, unit in (("interruptions", "interruptions a job"), ("unfairness", "Gini of requests")):
            found.append(_means(f"{state}: {unit}, {policy}", unit, _values(reports[policy], name)))
    return found


def _attacked(scenario: Scenario, seeds: int) -> list[Measurement]:
    reports = {one.policy: one for one in compare(scenario, MAIN, [4], seeds, processes=PROCESSES).reports}
    found = []
    for policy in MAIN:
        for name, unit in (
            ("attacker_requests", "part of the requests"),
            ("attacker_work", "part of the work"),
        ):
            found.append(
                _means(f"hostile: attackers' {unit}, {policy}", "part", _values(reports[policy], name))
            )
    return found


def _means(
    name: str,
    unit: str,
    ours: Sequence[float],
    rival: str = "",
    theirs: Sequence[float] = (),
    goal: Goal | None = None,
) -> Measurement:
    """The means over seeds: interruptions are rare, so that many seeds' medians are zero."""
    value, other = statistics.fmean(ours), statistics.fmean(theirs) if theirs else None
    ratio = value / other if other else None
    return Measurement(
        name,
        float(f"{value:.5g}"),
        unit,
        goal.text(unit) if goal else "",
        goal.met(value, ratio) if goal and not (goal.of_ratio and ratio is None) else None,
        rival,
        None if other is None else float(f"{other:.5g}"),
        None if ratio is None else float(f"{ratio:.5g}"),
        [float(f"{one:.5g}") for one in ours],
    )
