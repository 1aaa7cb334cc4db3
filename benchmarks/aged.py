"""Calls, and takeovers by a standby, after a year of a thousand nodes, beside an empty system.

Run by `make bench-aged`, on SQLite and on PostgreSQL (PEERLOOM_TEST_DATABASE names one, by the URL of a user
who may create databases). The nodes are registered by real agents' code; then the databases are given what
so many days leave there (aged_rows.py), and the services start. All calls of the three services are timed,
but those that aged_calls.py leaves out by name. A call needs something to answer about, so that the rival is
empty but for what fills each answer once: a page of nodes, with their sessions, beliefs and jobs of one day.
Each call is timed in turn at both, and answers as much at both. Takeovers are on PostgreSQL, beside a
database with nothing in it. NODES and DAYS name other numbers, for trying with --quick.
"""

import os
import time
from collections.abc import Callable

from benchmarks.aged_calls import CALLS, LEFT_OUT, PAGE, Act, System
from benchmarks.aged_system import Url, aged_system, postgresql, sqlite
from benchmarks.aged_takeover import takeovers
from benchmarks.chaos.system import COORDINATORS
from benchmarks.measure import Goal, Measurement, measurement

NODES, YEAR, NUMBER, WARM_UP, TAKEOVERS = 1_000, 365, 200, 10, 6
QUICK_NODES, QUICK_DAYS, QUICK_NUMBER, QUICK_TAKEOVERS = 20, 10, 20, 1
GOAL = Goal(2.0, at_least=False, of_ratio=True)
ALMOST_EMPTY, EMPTY = "empty but for what is answered", "an empty database"


def run(quick: bool) -> list[Measurement]:
    """Both engines, one after the other."""
    nodes = int(os.environ.get("NODES") or (QUICK_NODES if quick else NODES))
    days = int(os.environ.get("DAYS") or (QUICK_DAYS if quick else YEAR))
    age = f"{nodes:,} nodes, {days} days"
    count, rounds = (QUICK_NUMBER, QUICK_TAKEOVERS) if quick else (NUMBER, TAKEOVERS)
    with sqlite() as old, sqlite() as young:
        found = _compared(f"SQLite, {age}", old, young, nodes, days, count)
    with postgresql() as old, postgresql() as young, postgresql() as empty:
        found += _compared(f"PostgreSQL, {age}", old, young, nodes, days, count)
        found += _taken_over(f"PostgreSQL, {age}", old, empty, rounds)
    for name, why in LEFT_OUT.items():
        print(f"   {name} was left out: it {why}", flush=True)
    return found


def profile(quick: bool) -> str:
    """None: a call that got slower is to be looked at by its query's plan."""
    return ""


def _compared(title: str, old: Url, young: Url, nodes: int, days: int, count: int) -> list[Measurement]:
    with aged_system(old, nodes, days) as ours, aged_system(young, min(nodes, PAGE), 1) as rival:
        return [_timed(f"{title}: {name}", count, CALLS[name], ours, rival) for name in CALLS]


def _timed(
    title: str, count: int, call: Callable[[System, int], Act], aged: System, young: System
) -> Measurement:
    taken: tuple[list[float], list[float]] = ([], [])
    for number in range(WARM_UP + count):  # the first ones open files and fill caches
        for system, times in zip((aged, young), taken, strict=True):
            act = call(system, number)
            begin_s = time.perf_counter()
            act()
            if number >= WARM_UP:
                times.append(1000 * (time.perf_counter() - begin_s))
    print(f"   {title}", flush=True)
    ours, rival = taken
    return measurement(title, "ms", ours, statistic="p95", goal=GOAL, rival=ALMOST_EMPTY, rival_samples=rival)


def _taken_over(title: str, old: Url, empty: Url, rounds: int) -> list[Measurement]:
    seconds = takeovers(old, empty, rounds)
    return [
        measurement(
            f"{title}: from SIGKILL of the {name} until its standby has answered",
            "s",
            seconds[name][0],
            rival=EMPTY,
            rival_samples=seconds[name][1],
        )
        for name in COORDINATORS
    ]
