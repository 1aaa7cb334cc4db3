"""How long a pause is normal: learned from the intervals between a worker's signs of life.

After the phi-accrual failure detector (Hayashibara et al., 2004): the next sign is expected within the
mean of the recent intervals plus as many of their standard deviations as make a false alarm rare. So a
busy machine, whose intervals vary, earns itself more patience. The longest few are left out: a worker that
was frozen or cut off now and then is not to cost the others more when that comes again.
"""

from collections import deque
from math import ceil, sqrt
from statistics import fmean

# A shorter one finds nobody sooner, for FLOOR_S, and takes more from the training beside it.
BEAT_INTERVAL_S = 0.2
WINDOW = 200  # intervals remembered: 40 s; longer is steadier and learns later
MIN_SAMPLES = 10
DEVIATIONS = 8.0
RARE = 1 / 40  # such a part of the intervals, the longest, is no habit: five in 40 s
# A pause of a second is no sign of death, however steady the beats were; it bounds how fast a frozen
# worker is found, and how often a busy machine alarms falsely.
FLOOR_S = 1.0
CEILING_S = 10.0
UNKNOWN_S = 3.0  # before enough intervals were seen


def suspicion_timeout_s(intervals_s: "deque[float]") -> float:
    """Seconds without a sign of life after which a worker is suspected, between 1 and 10."""
    if len(intervals_s) < MIN_SAMPLES:
        return UNKNOWN_S
    usual_s = sorted(intervals_s)[: -ceil(RARE * len(intervals_s))]
    mean_s = fmean(usual_s)
    deviation_s = sqrt(fmean((interval_s - mean_s) ** 2 for interval_s in usual_s))  # pstdev is slow
    expected_s = mean_s + DEVIATIONS * deviation_s
    return min(max(expected_s, FLOOR_S), CEILING_S)


class HeartbeatHistory:
    """One worker's signs of life. All times are monotonic seconds of the trainer's clock."""

    def __init__(self) -> None:
        self._intervals_s: deque[float] = deque(maxlen=WINDOW)
        self._last_s: float | None = None
        self._timeout_s = UNKNOWN_S

    def beat(self, now_s: float) -> None:
        """A sign of life arrived."""
        if self._last_s is not None:
            self._intervals_s.append(now_s - self._last_s)
            self._timeout_s = suspicion_timeout_s(self._intervals_s)
        self._last_s = now_s

    def restart(self, now_s: float) -> None:
        """Forgives the past: the trainer itself was not listening."""
        self._last_s = now_s if self._last_s is not None else None

    def stop(self) -> None:
        """The worker's session broke: a pause says nothing until the next beat."""
        self._last_s = None

    def quiet_at_s(self) -> float | None:
        """When the pause becomes suspicious; None before the first beat."""
        return None if self._last_s is None else self._last_s + self._timeout_s
