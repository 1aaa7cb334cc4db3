"""How a batch is divided among unequal workers, and when another division is worth taking."""

from collections.abc import Mapping, Sequence
from statistics import median

SCALE = 10_000  # shares are whole numbers; this is their resolution
CUT_WORTH = 1.5  # slots of less different speeds get as much of a model: measuring them is coarse
GAIN_WORTH = 1.03  # a step must become this much shorter; less is noise, and other sums round differently


def shares_for(seconds_per_sample: Sequence[float]) -> list[int]:
    """Shares in proportion to the speeds, the fastest worker's being 10,000.

    `seconds_per_sample` of each worker; 0 where it is unknown, which counts as a middling one.
    """
    known = [seconds for seconds in seconds_per_sample if seconds > 0]
    usual_s = median(known) if known else 1.0
    speeds = [1.0 / (seconds or usual_s) for seconds in seconds_per_sample]
    return [max(1, round(SCALE * speed / max(speeds))) for speed in speeds]


def why_divide_anew(shares: Sequence[int], seconds_per_sample: Sequence[float]) -> str:
    """Why other shares are wanted; "" when the present ones are good enough or a speed is unknown (0).

    A step takes as long as its slowest worker: max(share * seconds a sample). The best division takes
    1 / sum(1 / seconds a sample), so that all end together.
    """
    if len(shares) < 2 or any(seconds <= 0 for seconds in seconds_per_sample):
        return ""
    total = sum(shares)
    now_s = max(share / total * s for share, s in zip(shares, seconds_per_sample, strict=True))
    best_s = 1.0 / sum(1.0 / s for s in seconds_per_sample)
    if now_s < GAIN_WORTH * best_s:
        return ""
    return f"the workers' speeds differ: steps can be {now_s / best_s:.2f} times as fast with other shares"


def stage_shares(worker_ids: Sequence[str], seconds: Mapping[str, float]) -> list[int]:
    """How a pipeline's model is divided among its workers: equally unless some are known to be much slower.

    `seconds` that equal work takes each; who isn't known counts as a middling one.
    """
    found = [seconds.get(worker_id, 0.0) for worker_id in worker_ids]
    known = [s for s in found if s > 0]
    return shares_for(found) if known and max(known) >= CUT_WORTH * min(known) else [1] * len(found)


def first_shares(worker_ids: Sequence[str], seconds_per_sample: Mapping[str, float]) -> list[int]:
    """Shares to begin a generation with: equal ones unless the known speeds say that others are worth it."""
    seconds = [seconds_per_sample.get(worker_id, 0.0) for worker_id in worker_ids]
    shares, known = [1] * len(seconds), [s for s in seconds if s > 0]
    return shares_for(seconds) if why_divide_anew([1] * len(known), known) else shares
