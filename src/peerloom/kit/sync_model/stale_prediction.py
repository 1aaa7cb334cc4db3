"""What a step takes whose gradients may be older, or which doesn't need all: by the rules of `handing_out`.

Workers tell each other their rows over and over. While a step's sum travels they go on computing, and tell no
rows. Simulated time passes from row to row and from sum to sum, as in a job.
"""

import math
from collections import deque
from collections.abc import Sequence
from dataclasses import replace

from peerloom.kit.handing_out import (
    ROW_PAUSE_S,
    BatchPart,
    HandOut,
    Row,
    after_step,
    handed_out,
    taken,
    without_late,
)
from peerloom.kit.stale_steps import StaleSteps
from peerloom.kit.sync_method import SyncMethod
from peerloom.kit.sync_model.prediction import StepPrediction, predict
from peerloom.kit.sync_model.scheme import SyncScheme, scheme_of
from peerloom.kit.sync_model.sync_setting import SyncSetting

# Steps after which each takes, in the mean, what all later ones take; and how many are looked at then.
_SETTLED, _MEASURED = 40, 200


def predicted(method: SyncMethod, setting: SyncSetting) -> StepPrediction:
    """What a step takes by any method but federated rounds. Raises what `predict` does."""
    scheme = scheme_of(method)
    return predict(scheme, setting) if method.stale is None else predict_late(scheme, method.stale, setting)


def predict_late(scheme: SyncScheme, stale: StaleSteps, setting: SyncSetting) -> StepPrediction:
    """What a step takes in the mean, away from the ends of epochs; the batch can be cut into equal parts.

    What ranks wait for each other counts as exposed communication. `timeline` is of a sum for which all wait.
    Raises what `predict` does.
    """
    plain = predict(scheme, setting)
    network, parts = setting.network, stale.needed(setting.network.ranks)
    trips = 2 if network.library_waits else 1
    row_s = (network.ranks - 1) * (trips * network.farthest_s + network.overhead_s)
    computing = [_Computing(setting.share_s(rank) * network.ranks / parts) for rank in range(network.ranks)]
    step_s = _steady_step_s(stale, parts, computing, row_s, plain.step_s - plain.compute_s)
    waited_s = max(0.0, step_s - plain.compute_s)
    compression_s = min(plain.compression_s, waited_s)
    return replace(plain, step_s=step_s, compression_s=compression_s, exposed_s=waited_s - compression_s)


class _Computing:
    """A rank that computes what it was handed, one part after the other, each in `part_s`."""

    def __init__(self, part_s: float) -> None:
        self._part_s = part_s
        self._parts: dict[int, BatchPart] = {}
        self._waiting: deque[int] = deque()
        self._under_way: BatchPart | None = None
        self._ends_s = self._now_s = 0.0
        self._has_news = False

    def advance(self, now_s: float, version: int) -> None:
        """Computes until then; what it begins has parameters of that version."""
        while self._under_way is not None or self._waiting:
            if self._under_way is None:
                self._begin(self._waiting.popleft(), version)
            if self._ends_s > now_s:
                break
            self._end()
        self._now_s = now_s

    def hand(self, number: int, version: int) -> None:
        """One part more; if there is no other, it begins with parameters of that version."""
        self._parts[number] = BatchPart(number)
        self._waiting.append(number)
        self.advance(self._now_s, version)

    def drop(self, number: int) -> None:
        """A part has counted, or is refused: one that is under way is computed to its end for nothing."""
        del self._parts[number]

    @property
    def next_end_s(self) -> float:
        """When the part under way is done; infinite without one."""
        return self._ends_s if self._under_way is not None else math.inf

    def tells_s(self) -> float:
        """When it tells its next row."""
        if self._has_news or self._under_way is None:
            return self._now_s
        return min(self._ends_s, self._now_s + ROW_PAUSE_S)

    def told(self) -> Row:
        """Its row, which all hear now."""
        self._has_news = False
        return self.row()

    def row(self) -> Row:
        """What there is to tell."""
        part = self._under_way
        return Row(tuple(self._parts.values()), part is not None and self._parts.get(part.number) is not part)

    def _begin(self, number: int, version: int) -> None:
        self._under_way = self._parts[number] = BatchPart(number, version)
        self._ends_s = self._now_s + self._part_s

    def _end(self) -> None:
        part, self._under_way, self._now_s = self._under_way, None, self._ends_s
        self._has_news = True
        if part is not None and self._parts.get(part.number) is part:
            self._parts[part.number] = replace(part, is_done=True)


def _steady_step_s(
    stale: StaleSteps, parts: int, ranks: Sequence[_Computing], row_s: float, exchange_s: float
) -> float:
    """The mean of `_MEASURED` steps; a step has so many `parts`, and its sum takes `exchange_s`."""
    steps = _SETTLED + _MEASURED
    # What isn't made any more keeps an epoch's end away.
    total = parts * (steps + (stale.bound or 0)) + len(ranks) * 8
    now = HandOut(stale, total, parts, False, tuple(Row() for _ in ranks))
    time_s, ends_s = 0.0, list[float]()
    for version in range(steps):
        while not (chosen := taken(now, version)):
            now, given = handed_out(now)
            for rank, numbers in zip(ranks, given, strict=True):
                for number in numbers:
                    rank.hand(number, version)
            time_s += _idle_s(now, ranks, time_s, row_s)
            _advance(ranks, time_s, version)
            told_s = max(rank.tells_s() for rank in ranks)
            _advance(ranks, told_s, version)
            now, late = without_late(replace(now, rows=tuple(rank.told() for rank in ranks)), version)
            time_s = told_s + row_s
            _advance(ranks, time_s, version)
            for each in late:
                ranks[each.rank].drop(each.part.number)
        time_s += exchange_s
        _advance(ranks, time_s, version)
        now, refused = after_step(now, version + 1, chosen)
        for each in (*chosen, *refused):
            ranks[each.rank].drop(each.part.number)
        ends_s.append(time_s)
    return (ends_s[-1] - ends_s[_SETTLED - 1]) / _MEASURED


def _advance(ranks: Sequence[_Computing], now_s: float, version: int) -> None:
    for rank in ranks:
        rank.advance(now_s, version)


def _idle_s(now: HandOut, ranks: Sequence[_Computing], time_s: float, row_s: float) -> float:
    """Whole rounds of rows in which nobody has news: until the next part is done, if all know all."""
    if now.rows != tuple(rank.row() for rank in ranks):
        return 0.0
    round_s = ROW_PAUSE_S + row_s
    return max(0.0, (min(rank.next_end_s for rank in ranks) - time_s) // round_s * round_s)
