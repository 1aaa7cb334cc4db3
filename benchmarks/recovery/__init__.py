"""`make bench-recovery`: how soon a job goes on after a fault, what it keeps of its throughput; its rivals.

Each part runs alone: PARTS="kill freeze". A recovery's time is from the signal (or the cut) to the next step
that was committed without the victim, on the clock of this machine; `join` tells what a newcomer costs, and
`leaks` what stays behind. `patience` and `methods` run only when they are named.
"""

import importlib
import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # rivals' workers import this package too, where there is nothing but torch
    from benchmarks.measure import Measurement

PARTS = ("kill", "restarted", "join", "freeze", "cut", "throughput", "leaks", "rivals")
ALONE = ("patience", "methods")


def chosen_parts() -> tuple[str, ...]:
    """What PARTS names, all but those of ALONE when it is empty. Raises SystemExit for an unknown name."""
    chosen = tuple(os.environ.get("PARTS", "").split()) or PARTS
    unknown = sorted(set(chosen) - set(PARTS + ALONE))
    if unknown:
        raise SystemExit(f"there is no part {', '.join(unknown)}; there are {', '.join(PARTS + ALONE)}")
    return chosen


def run(quick: bool) -> "list[Measurement]":
    """All chosen parts, one after the other."""
    measured: list[Measurement] = []
    for part in chosen_parts():
        print(f"-- {part}", flush=True)
        measured += importlib.import_module(f"benchmarks.recovery.{part}").run(quick)
    return measured


def profile() -> str:
    """Where the time goes, from each chosen part that can tell."""
    parts = [importlib.import_module(f"benchmarks.recovery.{part}") for part in chosen_parts()]
    return "\n".join(part.profile_one() for part in parts if hasattr(part, "profile_one"))
