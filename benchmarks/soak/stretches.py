"""Which faults strike when: most of the time the coordinators are spared, so that they grow old."""

from collections.abc import Sequence

from benchmarks.chaos.faults import OF_COORDINATORS, Fault

CYCLE_S = 7200.0
STORM = 0.2  # of each cycle: the whole list; in the rest the list without the coordinators' faults
PAUSE_S = (1.0, 3.0)


def spare_coordinators(faults: Sequence[Fault], seconds: float) -> list[Fault]:
    """The faults that strike; the pause of one that is left out is added to the next one's.

    A run that is shorter than a cycle is one cycle.
    """
    cycle_s = min(CYCLE_S, seconds)
    chosen, at_s, waited_s = [], 0.0, 0.0
    for fault in faults:
        at_s, waited_s = at_s + fault.pause_s, waited_s + fault.pause_s
        is_storm = at_s % cycle_s < STORM * cycle_s
        if is_storm or fault.kind not in OF_COORDINATORS:
            chosen.append(Fault(waited_s, fault.kind, fault.lasts_s, fault.lot))
            waited_s = 0.0
    return chosen
