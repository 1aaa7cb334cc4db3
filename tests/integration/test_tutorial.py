"""docs/tutorial.md is true: its blocks run in their order in one folder, and show what it says they show.

How what is shown is compared with what was printed, page_blocks tells.
"""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from page_blocks import Block, blocks_of

from peerloom.embedded.folder import StateFolder

ROOT = Path(__file__).parents[2]
TUTORIAL = ROOT / "docs" / "tutorial.md"
BLOCK_LIMIT_S = 180.0
STOP_LIMIT_S = 30.0
_FILE = re.compile(r"# (\w+\.py)\n")


class Reader:
    """Somebody who follows the page in a folder that looks like the repository."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._environment = folder / ".environment"
        for entry in ROOT.iterdir():
            if entry.name != ".git":
                (folder / entry.name).symlink_to(entry)
        self._environment.write_text("")

    def follow(self, block: Block) -> str:
        """Does what a block says; returns all that it printed. Variables last until the end of the page."""
        file = _FILE.match(block.code)
        if file:
            (self._folder / file[1]).write_text(block.code)
            return ""
        code = self._folder / ".block"
        code.write_text(block.code)
        step = {"sh": f". {code}", "python": f"{sys.executable} {code}"}[block.language]
        script = f". {self._environment}\nset -euo pipefail\n{step}\nexport -p > {self._environment}"
        done = subprocess.run(
            ["bash", "-c", script],
            cwd=self._folder,
            env={name: value for name, value in os.environ.items() if name not in _NOT_A_READERS},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=BLOCK_LIMIT_S,
        )
        assert done.returncode == 0, f"line {block.line} ended with {done.returncode}:\n{done.stdout}"
        return done.stdout


# make's own would change how the page's make runs; the others would lead to another system.
_NOT_A_READERS = {"MAKEFLAGS", "MAKELEVEL", "MFLAGS", "PEERLOOM_ADDRESS", "PEERLOOM_STATE", "PYTHONPATH"}


@pytest.fixture
def reader(tmp_path: Path) -> Iterator[Reader]:
    """A reader whose system is stopped even when the page fails in its middle."""
    yield Reader(tmp_path)
    state = tmp_path / "tutorial-state"
    if state.exists():
        down = [sys.executable, "-m", "peerloom.cli", "down", "--state", str(state)]
        subprocess.run(down, capture_output=True, timeout=BLOCK_LIMIT_S)
        assert StateFolder(state).wait_until_free(STOP_LIMIT_S)


@pytest.mark.timeout(600)
def test_the_tutorial_can_be_followed_from_its_first_line_to_its_last(reader: Reader) -> None:
    blocks = blocks_of(TUTORIAL.read_text())
    assert {block.language for block in blocks} == {"sh", "python"}
    for block in blocks:
        printed = reader.follow(block)
        block.compare(printed)


def test_every_page_that_the_documentation_links_to_exists() -> None:
    pages = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    broken = [
        f"{page.relative_to(ROOT)}: {target}"
        for page in pages
        for target in re.findall(r"\]\((?!https?:)([^)#]+)", page.read_text())
        if not (page.parent / target).exists()
    ]
    assert broken == []
