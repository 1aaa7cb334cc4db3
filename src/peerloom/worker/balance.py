"""The division of the batch, fitted to the speeds that the workers measure, without leaving the group.

Every few batches all workers exchange how long a sample took them. Each computes the next shares from the
same numbers, so all change at the same step, and nobody has to be asked.
"""

import math
from collections import deque

import torch

from peerloom.kit.logs import get_logger
from peerloom.worker.group.process_group import Group, all_gather_rows
from peerloom.worker.shares import MEASUREMENTS_MOST, divide_anew

WINDOW_S = 2.0  # shorter ones follow noise; longer ones follow a machine that has become slower too late
BATCHES_MIN, BATCHES_MAX = 10, 1000
_log = get_logger()


class Balance:
    """The shares of one generation, by rank; `is_fixed` keeps them as they are."""

    def __init__(self, shares: list[int], is_fixed: bool) -> None:
        self.shares = shares
        self._told: list[int] = []
        self._is_fixed = is_fixed or len(shares) < 2
        self._measured: deque[list[float]] = deque(maxlen=MEASUREMENTS_MOST)  # with these shares
        self._due = BATCHES_MIN
        self._batches = self._samples = 0
        self._step_s = self._compute_s = 0.0

    def note(self, step_s: float, compute_s: float, samples: int, batches: int = 1) -> None:
        """A step took `step_s` seconds, of which this worker computed `compute_s` for so many samples."""
        self._batches += batches
        self._step_s += step_s
        self._compute_s += compute_s
        self._samples += samples

    def news(self, shares: list[int]) -> list[int]:
        """The shares of a step, if those of the last one that was asked about were others; else none."""
        if shares == self._told:
            return []
        self._told = list(shares)
        return self._told

    def after_step(self, group: Group) -> None:
        """Takes better shares when the window was long enough; all workers do at the same step."""
        if self._is_fixed or self._batches < self._due:
            return
        own_s = self._compute_s / self._samples if self._samples else 0.0
        rows = all_gather_rows(group, [own_s, self._step_s], torch.float64)
        window_s = float(rows[0][1])  # of rank 0: all must come to the same conclusion
        batches = batches_until_next(self._batches, window_s)
        if window_s < WINDOW_S:
            self._due = self._batches + batches
            return
        self._measured.append([float(row[0]) for row in rows])
        division = divide_anew(self.shares, list(self._measured))
        if division.reason:
            self.shares = division.shares
            self._measured.clear()
            _log.info("batch_divided", shares=self.shares, reason=division.reason)
        self._restart(batches)

    def _restart(self, due: int) -> None:
        self._due, self._batches, self._samples = due, 0, 0
        self._step_s = self._compute_s = 0.0


def batches_until_next(batches: int, window_s: float) -> int:
    """Batches that make up a window of 2 s at the pace of these; 10 to 1000."""
    if window_s <= 0:
        return BATCHES_MAX
    return min(max(math.ceil(WINDOW_S * batches / window_s), BATCHES_MIN), BATCHES_MAX)
