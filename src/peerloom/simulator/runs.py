"""One simulation as what a report needs of it, and many of them, a process for each few seeds."""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from multiprocessing import get_context

from peerloom.simulator.figures import figures
from peerloom.simulator.rounds import Round
from peerloom.simulator.scenario import Scenario
from peerloom.simulator.simulation import Beginning

MOST_HOSTS_WITH_HITS = 1000
Key = tuple[str, int]


@dataclass(frozen=True)
class Run:
    """A simulation's figures, the useful work of each round, and in how many rounds each host gave compute
    (nobody, when there are too many hosts to tell).
    """

    figures: dict[str, float]
    useful: list[float]
    hits: dict[int, int]
    nodes: int


def runs_of_seeds(
    scenario: Scenario,
    policies: Sequence[str],
    budgets: Sequence[int],
    seeds: Sequence[int],
    processes: int,
) -> Iterator[dict[Key, Run]]:
    """For each seed in turn, a run for each policy and budget. They don't depend on `processes`."""
    task: Callable[[int], dict[Key, Run]] = partial(_runs, scenario, policies, budgets)
    if min(processes, len(seeds)) == 1:
        yield from map(task, seeds)
        return
    # Fresh processes, not forks: a fork would lose the caller's threads, and the locks that they hold.
    with ProcessPoolExecutor(min(processes, len(seeds)), get_context("spawn")) as pool:
        yield from pool.map(task, seeds)


def _runs(scenario: Scenario, policies: Sequence[str], budgets: Sequence[int], seed: int) -> dict[Key, Run]:
    """All of them from the same beginning."""
    seeded = replace(scenario, seed=seed)
    beginning = Beginning.of(seeded)
    found = {}
    for budget in budgets:
        for policy in policies:
            hosts, rounds = beginning.play(replace(seeded, budget=budget, policy=policy))
            count = len(hosts.hosts)
            hits = _hits(rounds) if count <= MOST_HOSTS_WITH_HITS else {}
            useful = [one.useful_gflops for one in rounds]
            found[policy, budget] = Run(figures(hosts, rounds), useful, hits, count)
    return found


def _hits(rounds: Sequence[Round]) -> dict[int, int]:
    counts: dict[int, int] = {}
    for one in rounds:
        for host, _ in one.work_of:
            counts[host] = counts.get(host, 0) + 1
    return counts
