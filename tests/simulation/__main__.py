"""`python -m tests.simulation`: runs histories, and tells the first that breaks a promise."""

import argparse
import sys
import time
from collections import Counter

from tests.simulation.faults import Fault
from tests.simulation.planted import PLANTS
from tests.simulation.shrinking import shrink
from tests.simulation.simulate import Outcome, all_faults, run_history

REPORT_EVERY = 1000


def main() -> int:
    """0 when all promises held."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("--seed", type=int, help="tell the history of this seed")
    parser.add_argument("--faults", help="with --seed: only these of its faults, e.g. 0,2; empty: none")
    parser.add_argument("--histories", type=int, default=100, help="how many to run (default: 100)")
    parser.add_argument("--first", type=int, default=0, help="the first seed (default: 0)")
    parser.add_argument("--messages", action="store_true", help="tell every message, too")
    parser.add_argument("--plant", choices=sorted(PLANTS), help="break this rule of the product first")
    chosen = parser.parse_args()
    if chosen.plant:
        with PLANTS[chosen.plant]():
            return _run(chosen)
    return _run(chosen)


def _run(chosen: argparse.Namespace) -> int:
    if chosen.seed is not None:
        outcome = run_history(chosen.seed, _chosen_faults(chosen), tells_messages=chosen.messages)
        print(told(outcome))
        return 1 if outcome.broken else 0
    began_s, states = time.monotonic(), Counter[str]()
    for number in range(chosen.histories):
        outcome = run_history(chosen.first + number)
        states.update(state.split()[1].rstrip(":") for state in outcome.states)
        if outcome.broken:
            print(told(shrink(outcome)))
            return 1
        if (number + 1) % REPORT_EVERY == 0:
            print(f"{number + 1} histories, {time.monotonic() - began_s:.0f} s", flush=True)
    seconds = time.monotonic() - began_s
    ends = ", ".join(f"{count} {state}" for state, count in sorted(states.items()))
    print(f"{chosen.histories} histories kept every promise in {seconds:.0f} s; jobs: {ends}")
    return 0


def _chosen_faults(chosen: argparse.Namespace) -> list[Fault] | None:
    if chosen.faults is None:
        return None
    numbers = [int(number) for number in chosen.faults.split(",") if number]
    every = all_faults(chosen.seed)
    return [every[number] for number in numbers]


def told(outcome: Outcome) -> str:
    """A history for people: its seed, its faults, what happened and what was broken."""
    lines = [
        f"seed {outcome.seed}, {outcome.end_s:.3f} virtual seconds, digest {outcome.history.digest[:16]}"
    ]
    lines += [f"  {fault}" for fault in outcome.faults] or ["  no faults"]
    lines += outcome.history.lines
    lines += [f"job: {state}" for state in outcome.states]
    lines += [f"BROKEN: {text}" for text in outcome.broken] or ["every promise was kept"]
    every = all_faults(outcome.seed)
    left = ",".join(str(every.index(fault)) for fault in outcome.faults)
    only = "" if len(every) == len(outcome.faults) else f' --faults "{left}"'
    return "\n".join([*lines, f"again: python -m tests.simulation --seed {outcome.seed}{only}"])


if __name__ == "__main__":
    sys.exit(main())
