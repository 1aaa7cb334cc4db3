"""The blocks of a page that run, and the output that it shows for each.

A text block after a block that runs is its output. Figures, ids and ports differ from run to run, so every
word of at least three letters in it must be in the real output, and lines of "..." stand for anything.
"""

import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from peerloom import Embedded

_BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_WORD = re.compile(r"\b[A-Za-z_]{3,}\b")


@dataclass(frozen=True)
class Block:
    """Code to run ("sh" or "python"), where it stands, and the output that the page shows for it."""

    language: str
    code: str
    line: int
    shown: str

    def compare(self, printed: str) -> None:
        """Fails where a word is shown that wasn't printed."""
        missing = set(_WORD.findall(self.shown)) - set(_WORD.findall(printed))
        assert not missing, f"line {self.line} shows {sorted(missing)}, but printed:\n{printed}"


def blocks_of(page: str) -> list[Block]:
    """The blocks that run, each with the text block right after it."""
    found = list(_BLOCK.finditer(page))
    blocks = []
    for block, after in zip(found, [*found[1:], None], strict=True):
        if block[1] != "text":
            shown = after[2] if after is not None and after[1] == "text" else ""
            blocks.append(Block(block[1], block[2], page[: block.start()].count("\n") + 1, shown))
    return blocks


@contextmanager
def reader_shell(state: Path, examples: Path) -> Iterator[dict[str, str]]:
    """What a reader's shell has, beside nodes that allow code and know the examples' tasks."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PEERLOOM_NODE_ALLOW_CODE", "true")
        patch.setenv("PYTHONPATH", str(examples))
        with Embedded(state, (2, 1)) as system:
            path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
            yield {**os.environ, "PATH": path, "PEERLOOM_ADDRESS": system.address, "PYTHONPATH": ""}
