"""What the steps of a generation take, to be told beside what was predicted for its plan."""

from collections import deque
from statistics import median

from peerloom.v1.trainer_pb2 import StepProgress

WARM_UP_STEPS, STEPS_MEASURED, STEPS_KEPT = 2, 8, 32


class PlanPace:
    """The last steps of one generation, without its first ones, which open connections."""

    def __init__(self) -> None:
        self._steps: deque[float] = deque(maxlen=STEPS_KEPT)
        self._generation, self._seen = 0, 0

    def median_s(self, step: StepProgress) -> float | None:
        """A step was committed: the median of the last ones at each eighth, else None."""
        if step.generation != self._generation:
            self._generation, self._seen = step.generation, -WARM_UP_STEPS
            self._steps.clear()
        self._seen += 1
        if self._seen <= 0:
            return None
        self._steps.append(step.step_s)
        return median(self._steps) if self._seen % STEPS_MEASURED == 0 else None
