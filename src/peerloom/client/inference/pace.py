"""How long a model takes for a batch, learned from the batches that it has computed."""

import math


class Pace:
    """Seconds by batch size, a moving mean in each power of two; `guess_s` is for one sample before any."""

    def __init__(self, guess_s: float) -> None:
        self._guess_s = guess_s
        self._seen: dict[int, tuple[float, float]] = {}  # power of two: (mean samples, mean seconds)

    def note(self, samples: int, seconds: float) -> None:
        """Adds a batch."""
        power = int(math.log2(samples))
        old_samples, old_s = self._seen.get(power, (float(samples), seconds))
        self._seen[power] = (
            old_samples + 0.3 * (samples - old_samples),
            old_s + 0.3 * (seconds - old_s),
        )

    def predict_s(self, samples: int) -> float:
        """What a batch of `samples`, at least 1, would take.

        Between known sizes in a straight line; below the smallest no less than a proportional part and no
        more than the smallest; above the largest in proportion.
        """
        if not self._seen:
            return self._guess_s * samples
        known = sorted(self._seen.values())
        above = next((pair for pair in known if pair[0] >= samples), None)
        below = next((pair for pair in reversed(known) if pair[0] <= samples), None)
        if above is None and below is not None:
            return below[1] * samples / below[0]
        assert above is not None
        if below is None:
            return max(above[1] * samples / above[0], min(above[1], self._guess_s * samples))
        if above[0] == below[0]:
            return above[1]
        part = (samples - below[0]) / (above[0] - below[0])
        return below[1] + part * (above[1] - below[1])
