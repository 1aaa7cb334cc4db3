"""The fewest faults with which a history still breaks a promise."""

from collections.abc import Callable, Sequence

from tests.simulation.faults import Fault
from tests.simulation.simulate import Outcome, run_history


def shrink(outcome: Outcome, run: Callable[[int, Sequence[Fault]], Outcome] = run_history) -> Outcome:
    """The shortest history that is still broken when one fault after the other is left out."""
    shortest, has_shrunk = outcome, True
    while has_shrunk:
        has_shrunk = False
        for left_out in range(len(shortest.faults)):
            faults = [fault for number, fault in enumerate(shortest.faults) if number != left_out]
            tried = run(outcome.seed, faults)
            if tried.broken:
                shortest, has_shrunk = tried, True
                break
    return shortest
