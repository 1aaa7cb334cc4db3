"""How a batch is divided among unequal workers, and when another division is worth taking."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, median

SCALE = 10_000  # shares are whole numbers; this is their resolution
CUT_WORTH = 1.5  # slots of less different speeds get as much of a model: measuring them is coarse
GAIN_WORTH = 1.03  # a step must become this much shorter; for less, sums need not round differently
# One measurement must promise a step so much shorter, several in a row their part of it each: equal workers
# differ by some per cent for seconds, by whatever else their machines do, and then by as much the other way.
GAIN_AT_ONCE = 1.12
MEASUREMENTS_MOST = 5  # more follow a machine that has become slower too late


def shares_for(seconds_per_sample: Sequence[float]) -> list[int]:
    """Shares in proportion to the speeds, the fastest worker's being 10,000.

    `seconds_per_sample` of each worker; 0 where it is unknown, which counts as a middling one.
    """
    known = [seconds for seconds in seconds_per_sample if seconds > 0]
    usual_s = median(known) if known else 1.0
    speeds = [1.0 / (seconds or usual_s) for seconds in seconds_per_sample]
    return [max(1, round(SCALE * speed / max(speeds))) for speed in speeds]


@dataclass(frozen=True)
class Division:
    """Shares by rank; and why they are others than before, or ""."""

    shares: list[int]
    reason: str = ""


def divide_anew(shares: Sequence[int], measured: Sequence[Sequence[float]]) -> Division:
    """Better shares, if there are; the present ones where a speed is unknown (0).

    `measured` are the seconds a sample of each worker, the newest measurement last. The newest n of them,
    taken together, must promise an n-th of the gain that one alone must, and GAIN_WORTH.
    """
    for count in range(1, len(measured) + 1):
        newest = measured[-count:]
        if any(seconds <= 0 for row in newest for seconds in row):
            break
        seconds_per_sample = [fmean(each) for each in zip(*newest, strict=True)]
        gain = _gain(shares, seconds_per_sample)
        if gain >= max(GAIN_WORTH, 1 + (GAIN_AT_ONCE - 1) / count):
            reason = f"the workers' speeds differ: steps can be {gain:.2f} times as fast with other shares"
            return Division(shares_for(seconds_per_sample), reason)
    return Division(list(shares))


def _gain(shares: Sequence[int], seconds_per_sample: Sequence[float]) -> float:
    """How many times as fast steps can be.

    A step takes as long as its slowest worker: max(share * seconds a sample). The best division takes
    1 / sum(1 / seconds a sample), so that all end together.
    """
    total = sum(shares)
    now_s = max(share / total * s for share, s in zip(shares, seconds_per_sample, strict=True))
    return now_s * sum(1.0 / s for s in seconds_per_sample)


def stage_shares(worker_ids: Sequence[str], seconds: Mapping[str, float]) -> list[int]:
    """How a model is divided among its workers: equally unless some are known to be much slower.

    `seconds` that equal work takes each; who isn't known counts as a middling one.
    """
    found = [seconds.get(worker_id, 0.0) for worker_id in worker_ids]
    known = [s for s in found if s > 0]
    return shares_for(found) if known and max(known) >= CUT_WORTH * min(known) else [1] * len(found)


def first_shares(worker_ids: Sequence[str], seconds_per_sample: Mapping[str, float]) -> list[int]:
    """Shares to begin a generation with: equal ones unless the known speeds say that others are worth it."""
    seconds = [seconds_per_sample.get(worker_id, 0.0) for worker_id in worker_ids]
    shares, known = [1] * len(seconds), [s for s in seconds if s > 0]
    return shares_for(seconds) if known and divide_anew([1] * len(known), [known]).reason else shares
