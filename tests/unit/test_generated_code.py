"""The committed code in src/peerloom/v1 is what the protos give, and the protos pass buf's lint."""

import filecmp
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
COMMITTED = ROOT / "src" / "peerloom" / "v1"
BIN = Path(sys.executable).parent


def names_in(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir() if path.name != "__pycache__"}


@pytest.fixture(scope="module")
def fresh(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The code as `make proto` writes it, in another folder."""
    out = tmp_path_factory.mktemp("generated")
    # -o: whatever the state of .venv, don't set it up again in the middle of a test.
    command = ["make", "-o", ".venv/.ready", "proto", f"BIN={BIN}", f"OUT={out}"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return out / "peerloom" / "v1"


def test_each_proto_has_its_code_and_nothing_else_is_there(fresh: Path) -> None:
    assert names_in(COMMITTED) == names_in(fresh)


def test_the_committed_code_is_what_the_protos_give(fresh: Path) -> None:
    _, differing, missing = filecmp.cmpfiles(fresh, COMMITTED, names_in(fresh), shallow=False)
    assert differing + missing == [], "run: make proto"


def test_the_protos_pass_bufs_lint() -> None:
    done = subprocess.run([BIN / "buf", "lint", "protos"], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout
