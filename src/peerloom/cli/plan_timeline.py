"""A pipeline's step as lines of text: a row a worker of a stage, a column so much time."""

from collections import Counter
from typing import TYPE_CHECKING

from peerloom.kit.plan_model.pipeline_order import PassKind

if TYPE_CHECKING:
    from peerloom.kit.plan_model.pipeline_simulation import SimulatedPipeline, TimedPass

_LETTERS = "abcdefghijklmnopqrstuvwxyz"
_IDLE, _SUMS, _WEIGHTS = ".", "=", "+"
LEGEND = (
    "a, b, ... forward and A, B, ... backward of a micro-batch; + gradients of weights alone; "
    "= sums gradients; . waits"
)
_LEAST_COLUMNS = 20
_ROUNDING = 1e-6


def timeline_rows(simulated: "SimulatedPipeline", width: int) -> list[str]:
    """One for each worker, at most `width` characters; a column shows what it does longest in it.

    Waiting is shown where it does nothing else. Letters begin again after 26 micro-batches.
    """
    workers = dict.fromkeys((one.stage, one.worker) for one in simulated.passes)
    stages = Counter(stage for stage, _ in workers)
    labels = [_label(stage, worker, stages[stage]) for stage, worker in workers]
    longest = max(map(len, labels))
    columns = max(_LEAST_COLUMNS, width - longest)
    rows = {worker: _Row(columns, simulated.step_s / columns) for worker in workers}
    for one in simulated.passes:
        rows[one.stage, one.worker].fill(_symbol(one), one.start_s, one.end_s)
    for (stage, _), row in rows.items():
        row.fill(_SUMS, *simulated.sums[stage])
    return [label.ljust(longest) + row.text for label, row in zip(labels, rows.values(), strict=True)]


def _symbol(one: "TimedPass") -> str:
    letter = _LETTERS[one.micro_batch % len(_LETTERS)]
    return {PassKind.FORWARD: letter, PassKind.BACKWARD: letter.upper(), PassKind.WEIGHTS: _WEIGHTS}[one.kind]


def _label(stage: int, worker: int, workers: int) -> str:
    return f"stage {stage}  " if workers == 1 else f"stage {stage}, {worker + 1} of {workers}  "


class _Row:
    def __init__(self, columns: int, column_s: float) -> None:
        self._symbols = [_IDLE] * columns
        self._shown = [0.0] * columns  # columns that what is shown takes of each
        self._column_s = column_s

    def fill(self, symbol: str, start_s: float, end_s: float) -> None:
        start, end = start_s / self._column_s, end_s / self._column_s
        for place in range(int(start), min(len(self._symbols), int(end) + 1)):
            part = min(end, place + 1) - max(start, place)
            if part > self._shown[place] + _ROUNDING:
                self._symbols[place], self._shown[place] = symbol, part

    @property
    def text(self) -> str:
        return "".join(self._symbols)
