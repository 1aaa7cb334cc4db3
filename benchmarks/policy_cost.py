"""What choosing by each policy costs: among 100,000 nodes, for one fact, and for a simulated month."""

import cProfile
import io
import pstats
import time
import tracemalloc
from dataclasses import replace

import numpy as np

from benchmarks.intervals import EXACT
from benchmarks.measure import Goal, Measurement, measurement, percentile
from peerloom.services.selector.belief.formula import Reputation, Weights, update
from peerloom.services.selector.belief.track import HALF_LIFE_S, Track, observe
from peerloom.services.selector.catalog.columns import NodeColumns
from peerloom.services.selector.catalog.entries import CatalogEntry
from peerloom.services.selector.choosing.choice import choose
from peerloom.services.selector.policies import POLICIES, find_policy
from peerloom.services.selector.policies.interface import SelectionRequest
from peerloom.simulator import simulate, usual
from peerloom.v1.registry_pb2 import NODE_STATE_ALIVE
from peerloom.v1.selector_pb2 import EVIDENCE_KIND_TRAINING

SELECT_GOAL_MS, UPDATE_GOAL_US, MONTH_GOAL_S = 25.0, 100.0, 60.0
PARTS = 20  # of the updates, each with its own p99
NOW_S = 1_700_000_000.0


def run(quick: bool) -> list[Measurement]:
    """About three minutes of one core; processor times, so that other work on the machine matters little."""
    nodes, days = (1_000, 1) if quick else (100_000, 30)
    return [
        *_selecting(nodes, 10 if quick else 200),
        _updating(1_000 if quick else 20_000),
        *_month("volunteers-1000" if quick else "volunteers-10000", days),
    ]


def profile(quick: bool) -> str:
    """Where the time of a simulated day goes."""
    profiler = cProfile.Profile()
    profiler.runcall(simulate, replace(usual("volunteers-1000"), rounds=14 if quick else 144))
    text = io.StringIO()
    pstats.Stats(profiler, stream=text).sort_stats("tottime").print_stats(25)
    return text.getvalue()


def known_nodes(count: int) -> NodeColumns:
    """Nodes of whom half were asked for work, a fiftieth of them with a shared owner."""
    rng, columns = np.random.default_rng(7), NodeColumns()
    for number in range(count):
        host = "10.255.0.1" if number % 50 == 0 else f"10.{number >> 16}.{number >> 8 & 255}.{number & 255}"
        node_id = f"node-{number:012x}"
        start_s = NOW_S - float(rng.exponential(1e5))
        columns.put(
            CatalogEntry(
                node_id,
                f"n{number}",
                f"{host}:7402",
                1 + number % 4,
                NODE_STATE_ALIVE,
                session_start_s=start_s,
            )
        )
        if number % 2:
            work = (float(rng.poisson(3)) + 1, float(rng.poisson(1)), 3.0, 5.0, 1e8, 3.0)
            seen = (NOW_S, float(rng.exponential(1e5)), float(rng.poisson(3)), 0.0)
            track = Track(*seen, *work, 300 * float(rng.pareto(1.5)))
            columns.set_record(node_id, Reputation(belief=float(rng.normal())), track)
    return columns


def _selecting(nodes: int, calls: int) -> list[Measurement]:
    tracemalloc.start()
    columns = known_nodes(nodes)
    held = tracemalloc.get_traced_memory()[0] / 1e6
    tracemalloc.stop()
    found = [
        measurement(f"memory of {nodes:,} nodes, names and indices included", "MB", [held], statistic=EXACT),
        measurement(
            f"memory of their columns of numbers alone ({nodes:,} nodes)",
            "MB",
            [columns.bytes / 1e6],
            statistic=EXACT,
        ),
    ]
    for policy in POLICIES:
        seconds = _timed_selections(columns, policy, calls)
        goal = Goal(SELECT_GOAL_MS, at_least=False)
        title = f"choosing 10 of {nodes:,} nodes, {policy}, processor time"
        found += [
            measurement(f"{title}, p50", "ms", [1000 * one for one in seconds]),
            measurement(f"{title}, p99", "ms", [1000 * one for one in seconds], statistic="p99", goal=goal),
        ]
    return found


def _timed_selections(columns: NodeColumns, policy: str, calls: int) -> list[float]:
    rng, wish, seconds = np.random.default_rng(7), SelectionRequest(budget=10, min_slots=1), []
    chooser = find_policy(policy)
    for call in range(calls + 3):
        begin_s = time.process_time()
        choice = choose(columns, wish, chooser, rng, now_s=NOW_S + call)
        columns.note_asked(np.array(choice.rows, np.intp))
        if call >= 3:  # the first ones meet cold memory
            seconds.append(time.process_time() - begin_s)
    return seconds


def _updating(facts: int) -> Measurement:
    reputation, track, weights, seconds = Reputation(), Track(), Weights(), []
    for number in range(facts):
        begin_s = time.perf_counter()
        reputation, _ = update(reputation, EVIDENCE_KIND_TRAINING, weights, open_online_s=60.0)
        track = observe(
            track,
            EVIDENCE_KIND_TRAINING,
            time_s=NOW_S + number,
            half_life_s=HALF_LIFE_S,
            speed_gflops=100.0,
        )
        seconds.append(time.perf_counter() - begin_s)
    goal = Goal(UPDATE_GOAL_US, at_least=False)
    part = max(1, facts // PARTS)
    parts = [seconds[first : first + part] for first in range(0, facts, part)]
    of_parts = [1e6 * percentile(one, 99) for one in parts]
    return measurement(f"one fact: belief and track, p99 of {part:,}", "µs", of_parts, goal=goal)


def _month(population: str, days: int) -> list[Measurement]:
    begin_s = time.process_time()
    scenario = replace(usual(population), rounds=days * 144)
    simulate(scenario)
    goal = Goal(MONTH_GOAL_S, at_least=False)
    name = f"simulating {population} for {days} days, a job each 10 minutes, survival, processor time"
    return [measurement(name, "s", [time.process_time() - begin_s], goal=goal)]
