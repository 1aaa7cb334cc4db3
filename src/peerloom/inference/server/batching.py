"""Whether a request is taken, and which waiting ones are computed together: pure rules."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil

MARGIN = 1.1  # batches vary, and an answer has a way back
SHARE_OF_DEADLINE = 0.25


@dataclass(frozen=True)
class Admission:
    """The decision; a refused caller may come again after `retry_after_s`."""

    admitted: bool
    retry_after_s: float
    reason: str


def admit(
    queued_samples: int,
    samples: int,
    limit_samples: int,
    seconds_per_sample: float,
    remaining_s: float | None,
    under_way_s: float = 0.0,
    batch_samples: int = 1,
) -> Admission:
    """Takes what can be answered in time.

    `queued_samples` wait already, and what is being computed takes `under_way_s` more. `remaining_s` is what
    the caller's deadline leaves (None: no deadline), `seconds_per_sample` is measured, 0 when it isn't yet.
    `batch_samples` are computed together now: nobody is answered before all of a batch are.
    """
    wait_s = under_way_s + queued_samples * seconds_per_sample
    if queued_samples and queued_samples + samples > limit_samples:
        over = queued_samples + samples - limit_samples
        after_s = max(0.01, min(over, queued_samples) * seconds_per_sample)
        return Admission(
            False, after_s, f"{queued_samples:,} samples wait and the limit is {limit_samples:,}"
        )
    own_s = answered_s(queued_samples, samples, seconds_per_sample, batch_samples)
    needed_s = MARGIN * (under_way_s + own_s)
    if remaining_s is not None and wait_s > 0 and needed_s > remaining_s:
        return _late(needed_s, remaining_s)
    return Admission(True, 0.0, f"{queued_samples:,} samples wait, {wait_s:.3f} s of work")


def answered_s(ahead: int, samples: int, seconds_per_sample: float, batch_samples: int) -> float:
    """Seconds until the batch is over that holds the last of the samples, with so many `ahead` of them."""
    return ceil((ahead + samples) / batch_samples) * batch_samples * seconds_per_sample


def late(
    waiting: Sequence[tuple[int, float | None]], seconds_per_sample: float, batch_samples: int
) -> dict[int, Admission]:
    """Which of several that wait (samples, and what their deadlines leave; oldest first) won't be in time.

    By their place, with what to tell them: they were let in, and then it took longer than it had before.
    Nobody waits behind them, and nothing is computed for them. One that waits alone is never late: how long
    it takes alone is not known.
    """
    found, ahead = dict[int, Admission](), 0
    batch_samples = min(batch_samples, sum(samples for samples, _ in waiting))
    for place, (samples, remaining_s) in enumerate(waiting if len(waiting) > 1 else ()):
        needed_s = MARGIN * answered_s(ahead, samples, seconds_per_sample, batch_samples)
        if remaining_s is not None and needed_s > remaining_s:
            found[place] = _late(needed_s, remaining_s)
        else:
            ahead += samples
    return found


def _late(needed_s: float, remaining_s: float) -> Admission:
    left_s = max(0.0, remaining_s)
    reason = f"it would take {needed_s:.3f} s, and the deadline leaves {left_s:.3f} s"
    return Admission(False, max(0.01, needed_s - left_s), reason)


def moving_mean(past: float, measured: float) -> float:
    """The mean after one more measurement, which counts a fifth; `past` is 0 before the first."""
    return past + 0.2 * (measured - past) if past else measured


def batch_limit(
    limit_samples: int, last_samples: int, seconds_per_sample: float, oldest_s: float | None
) -> int:
    """How many samples may be computed together, at most `limit_samples`.

    One request alone, as long as nobody knows what a sample takes. Then what takes a quarter of what the
    oldest's deadline leaves (`oldest_s`, None: no deadline), so that there is time for others; but as many as
    last time, `last_samples`: `late` has made sure that these are in time, and where a batch is as fast as a
    sample, each smaller batch would make the next one smaller still.
    """
    if oldest_s is None:
        return limit_samples
    if not seconds_per_sample:
        return 1
    return min(limit_samples, max(last_samples, int(SHARE_OF_DEADLINE * oldest_s / seconds_per_sample)))


def take_batch(waiting: Sequence[int], limit_samples: int) -> int:
    """How many of the waiting requests (their samples, oldest first) are computed together, at least one."""
    taken, samples = 0, 0
    for count in waiting:
        if taken and samples + count > limit_samples:
            break
        taken, samples = taken + 1, samples + count
    return taken


def to_drop(
    sizes: Sequence[tuple[str, int]], in_use: set[str], needed_bytes: int, limit_bytes: int
) -> list[str]:
    """Which loaded models (key and bytes, least recently used first) go so that `needed_bytes` fit.

    Those `in_use` stay. What doesn't suffice is all that can go: the caller compares.
    """
    used, dropped = sum(size for _, size in sizes), list[str]()
    for key, size in sizes:
        if used + needed_bytes <= limit_bytes:
            break
        if key not in in_use:
            dropped.append(key)
            used -= size
    return dropped
