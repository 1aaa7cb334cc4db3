"""How long a step may take, learned from the steps of this generation."""

import math

STEPS_BEFORE = 20  # the first ones warm up, and say little
PATIENCE = 30.0  # times the slowest step
FLOOR_S = 5.0
DECAY = 0.99  # the slowest step is forgotten slowly


class Pace:
    """The slowest recent step, and the limit that follows from it."""

    def __init__(self) -> None:
        self._steps = 0
        self._slowest_s = 0.0

    def note(self, step_s: float) -> None:
        """A step took so many seconds."""
        self._steps += 1
        self._slowest_s = max(step_s, self._slowest_s * DECAY)

    def limit_s(self) -> float:
        """Seconds that a collective of the next step may take; infinite before enough steps were seen.

        Rounded up to a power of two, so that the limit changes seldom.
        """
        if self._steps < STEPS_BEFORE:
            return math.inf
        wanted_s = max(FLOOR_S, PATIENCE * self._slowest_s)
        return FLOOR_S * 2.0 ** math.ceil(math.log2(wanted_s / FLOOR_S))
