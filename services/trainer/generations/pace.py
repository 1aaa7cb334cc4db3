"""How soon the next generation may be formed where the last ones made no step."""

AT_ONCE = 5  # so many in a row: several workers may be lost one after the other
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.1, 5.0


def pause_after_s(fruitless: int) -> float:
    """How long to pause after so many generations in a row that made no step, in seconds.

    None after the first five, then 0.1, 0.2, 0.4, ... up to 5: workers that can't reach each other would
    else be told to meet hundreds of times a second.
    """
    if fruitless <= AT_ONCE:
        return 0.0
    return float(min(LONGEST_PAUSE_S, FIRST_PAUSE_S * 2.0 ** min(fruitless - AT_ONCE - 1, 10)))


class FormingPace:
    """Counts the generations of one job that made no step, since the last that did."""

    def __init__(self) -> None:
        self._fruitless = 0
        self._step = -1
        self._formed_s = 0.0

    def left_s(self, step: int, now_s: float) -> float:
        """Seconds until the next may be formed; 0 or less: now. `step` is the newest committed one."""
        if step > self._step:
            return 0.0
        return self._formed_s + pause_after_s(self._fruitless) - now_s

    def formed(self, step: int, now_s: float) -> None:
        """One was formed now."""
        self._fruitless = 1 if step > self._step else self._fruitless + 1
        self._step, self._formed_s = step, now_s
