"""Which faults strike when: most of the time the coordinators are spared, so that they grow old."""

from collections.abc import Sequence
from dataclasses import replace

from benchmarks.chaos.faults import OF_COORDINATORS, Fault

CYCLE_S = 7200.0
STORM = 0.2  # of each cycle: the whole list; in the rest the list without the coordinators' faults
PAUSE_S = (1.0, 3.0)


def spare_coordinators(faults: Sequence[Fault], seconds: float) -> list[Fault]:
    """The faults that strike: in place of one that spares its coordinator comes another of those drawn.

    Which one its lot tells, and whom. A run that is shorter than a cycle is one cycle.
    """
    cycle_s = min(CYCLE_S, seconds)
    others = sorted({fault.kind for fault in faults} - set(OF_COORDINATORS))
    chosen, at_s = [], 0.0
    for fault in faults:
        at_s += fault.pause_s
        is_storm = at_s % cycle_s < STORM * cycle_s
        chosen.append(fault if is_storm or fault.kind not in OF_COORDINATORS else _another(fault, others))
    return chosen


def _another(fault: Fault, kinds: Sequence[str]) -> Fault:
    at = fault.lot * len(kinds)
    return replace(fault, kind=kinds[int(at)], lot=at % 1)
