"""docs/gallery.md is true: each example runs beside one system, and prints what the page shows."""

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from page_blocks import Block, blocks_of, reader_shell

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "gallery.md").read_text()
LIMIT_S = 100.0
INTEGRATIONS = (ROOT / "docs" / "integrations.md").read_text()  # whose examples have tests of their own


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """What a reader's shell has beside the system that the page begins with."""
    with reader_shell(tmp_path_factory.mktemp("system"), ROOT / "examples") as shell:
        yield shell


def name_of(block: Block) -> str:
    """The example that a block runs."""
    return re.findall(r"examples/(\w+)|(?:\w+:\w+)|plan", block.code)[-1] or block.code.split()[1]


@pytest.mark.parametrize("block", blocks_of(PAGE), ids=name_of)
def test_an_example_prints_what_the_page_shows(
    block: Block, environment: dict[str, str], tmp_path: Path
) -> None:
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", block.code],
        cwd=tmp_path,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=LIMIT_S,
    )
    assert done.returncode == 0, done.stdout
    assert block.shown, f"line {block.line} shows no output"
    block.compare(done.stdout)


def test_every_example_is_shown_somewhere() -> None:
    shown = set(re.findall(r"\]\(\.\./examples/([^)]+)\)", PAGE + INTEGRATIONS))
    assert {path.name for path in (ROOT / "examples").iterdir() if path.is_file()} <= shown
