"""The cells of `choice` as they were measured, each of its commit: several runs make up one result.

A cell takes minutes and all of them hours, so a run takes those that were never measured first, and writes
each down at once. What counts of a cell is its last line. Where auto itself has changed, remove the file: a
result of cells that knew another auto says little.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from benchmarks.choice_cells import ChoiceCell
from benchmarks.choice_trials import Trials
from benchmarks.keeping import RESULTS, stamp

KEPT = RESULTS / "choice_cells.jsonl"


@dataclass(frozen=True)
class KeptCell:
    """A cell's title, the commit that was measured, when (UTC), and what came of it."""

    title: str
    commit: str
    date: str
    trials: Trials


def keep_cell(cell: ChoiceCell, trials: Trials, path: Path = KEPT) -> None:
    """Appends a line; the tree is clean (`check_may_keep`)."""
    kept = KeptCell(cell.title, **stamp(), trials=trials)
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as file:
        file.write(json.dumps(asdict(kept)) + "\n")


def kept_cells(path: Path = KEPT) -> dict[str, KeptCell]:
    """By title, the one measured longest ago first; {} where there is no file."""
    lines = path.read_text().splitlines() if path.exists() else []
    found: dict[str, KeptCell] = {}
    for told in map(json.loads, lines):
        found.pop(told["title"], None)
        found[told["title"]] = KeptCell(**{**told, "trials": Trials(**told["trials"])})
    return found


def in_turn(cells: Sequence[ChoiceCell], kept: Mapping[str, KeptCell]) -> list[ChoiceCell]:
    """Those never measured as they come, then the others, the one measured longest ago first."""
    turns = {title: turn for turn, title in enumerate(kept)}
    return sorted(cells, key=lambda cell: turns.get(cell.title, -1))
