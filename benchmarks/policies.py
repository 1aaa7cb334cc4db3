"""What each way to choose is worth: finished work, interruptions and time, in populations of every kind.

Everybody was asked 20 times by chance before the first job that counts, so that all choose with equal
knowledge; "from nothing" leaves that out. The seeds are 0 to 29; parameters of survival were chosen on seeds
from 1000 on only (decision 47). The same seeds give the same figures on every machine.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from benchmarks.flaws import flaw_figures
from benchmarks.measure import Goal, Measurement, measurement
from peerloom.simulator import PolicyReport, Scenario, compare, usual

SEEDS, ROUNDS, OBSERVATIONS = 30, 200, 20.0
SPEED_AWARE = ("speed", "speed-acceptance", "thesis-speed")
POLICIES = ("random", "thesis", *SPEED_AWARE, "survival")
POPULATIONS = (
    "equals-300",
    "turncoats-300",
    "outages-300",
    "labs-300",
    "phases-300",
    "slowing-300",
    "loaded-100",
    "volunteers-1000",
)
METRICS = {
    "useful_gflops": "GFLOP/s a requested slot",
    "of_bound": "part of the bound",
    "interruptions_node_hours": "interruptions in 100 node-hours",
    "interruptions": "interruptions a job",
    "finish_s": "s to finish",
    "finished": "part of the jobs",
}
# Each term of survival: where it has to earn its place, by which figure, and whether more of that is better.
TERMS = (
    ("hazard", "equals-300", "interruptions_node_hours", False),
    ("loss", "equals-300", "interruptions_node_hours", False),
    ("speed", "volunteers-1000", "useful_gflops", True),
    ("acceptance", "turncoats-300", "finished", True),
    ("change", "turncoats-300", "finished", True),
    ("occupancy", "loaded-100", "useful_gflops", True),
)
PROCESSES = 2
Reports = dict[str, PolicyReport]


def run(quick: bool) -> list[Measurement]:
    """About half an hour of one core, shared by two processes."""
    seeds = 2 if quick else SEEDS
    found: list[Measurement] = []
    for name in POPULATIONS:
        reports = _reports(name, (*POLICIES, "oracle", *_ablations(name)), seeds, quick)
        found += [*_figures(name, reports), *_goals(name, reports), *_terms(name, reports)]
    return [*found, *_from_nothing(seeds, quick), *_thesis_rounds(3 if quick else 200), *flaw_figures()]


def profile(quick: bool) -> str:
    """Nothing to add: a goal missed here is missed by a policy, not by slow code."""
    return ""


def _ablations(population: str) -> list[str]:
    return [f"survival-without-{term}" for term, where, *_ in TERMS if where == population]


def _reports(name: str, policies: Sequence[str], seeds: int, quick: bool, known: bool = True) -> Reports:
    base: Scenario = usual(name)
    rounds, observations = (20, 2.0) if quick else (ROUNDS, OBSERVATIONS)
    scenario = replace(base, rounds=rounds, observations=observations if known else 0.0, seed=0)
    return {one.policy: one for one in compare(scenario, policies, [4], seeds, processes=PROCESSES).reports}


def _values(report: PolicyReport, figure: str) -> list[float]:
    """A figure of each seed; of a policy that finished nothing there is no time, which no mean can hold."""
    return [value for value in report.figures[figure].values if value is not None]


def _figures(name: str, reports: Reports) -> Iterator[Measurement]:
    for figure, unit in METRICS.items():
        for policy in (*POLICIES, "oracle"):
            yield _mean(f"{name}: {unit}, {policy}", unit, _values(reports[policy], figure))


def _goals(name: str, reports: Reports) -> Iterator[Measurement]:
    ours = reports["survival"]
    if name == "equals-300":
        for rival in POLICIES[:-1]:
            yield _against(name, "interruptions_node_hours", ours, reports[rival], 1.0, at_least=False)
        yield _against(name, "useful_gflops", ours, reports["random"], 1.0, at_least=True)
    elif name == "turncoats-300":
        finished, late = _values(ours, "finished"), _values(ours, "found_out_requests")
        yield _mean(f"{name}: jobs that finish", "part", finished, Goal(0.9, at_least=True))
        title = f"{name}: requests to nodes that failed 20 times since they turned"
        yield _mean(title, "part", late, Goal(0.1, at_least=False))
        for policy in POLICIES:
            turned = _values(reports[policy], "turned_requests")
            yield _mean(f"{name}: requests to nodes that have turned, {policy}", "part", turned)
    elif name == "volunteers-1000":
        of_bound = _values(ours, "of_bound")
        yield _mean(f"{name}: work, of the bound", "part", of_bound, Goal(0.95, at_least=True))
        best = max(SPEED_AWARE, key=lambda policy: reports[policy].figures["useful_gflops"].mean or 0.0)
        yield _against(name, "useful_gflops", ours, reports[best], 1.0, at_least=True)
        yield _against(name, "interruptions_node_hours", ours, reports[best], 0.5, at_least=False)


def _terms(name: str, reports: Reports) -> Iterator[Measurement]:
    for term, where, figure, more_is_better in TERMS:
        if where == name:
            without = reports[f"survival-without-{term}"]
            yield _against(name, figure, reports["survival"], without, 1.0, at_least=more_is_better)


def _from_nothing(seeds: int, quick: bool) -> Iterator[Measurement]:
    reports = _reports("volunteers-1000", ("random", "thesis", "survival"), seeds, quick, known=False)
    for figure, unit in METRICS.items():
        for policy in reports:
            yield _mean(f"from nothing: {unit}, {policy}", unit, _values(reports[policy], figure))


def _thesis_rounds(seeds: int) -> Iterator[Measurement]:
    budgets = (2, 3, 4, 6, 8)
    reports = compare(usual("thesis20"), ["random", "thesis"], budgets, seeds, processes=PROCESSES).reports
    for number, budget in enumerate(budgets):
        chance, thesis = (
            [50 * value for value in _values(one, "reached")] for one in reports[2 * number : 2 * number + 2]
        )
        yield measurement(
            f"thesis, 20 nodes, budget {budget}: rounds of 50 that reached compute, mean of seeds",
            "rounds",
            thesis,
            statistic="mean",
            goal=Goal(46, at_least=True) if budget == 3 else None,
            rival="random",
            rival_samples=chance,
        )


def _against(
    name: str, figure: str, ours: PolicyReport, rival: PolicyReport, limit: float, *, at_least: bool
) -> Measurement:
    unit = METRICS.get(figure, "part of the requests")
    return measurement(
        f"{name}: {unit}, survival against {rival.policy}",
        unit,
        _values(ours, figure),
        statistic="mean",
        goal=Goal(limit, at_least=at_least, of_ratio=True),
        rival=rival.policy,
        rival_samples=_values(rival, figure),
    )


def _mean(name: str, unit: str, samples: Sequence[float], goal: Goal | None = None) -> Measurement:
    """The mean over seeds: interruptions are rare, so that many seeds' medians are zero."""
    return measurement(name, unit, samples, statistic="mean", goal=goal)
