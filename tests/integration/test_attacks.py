"""`make attack QUICK=1`: strangers and nodes attack a closed system of real processes, and gain nothing."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from peerloom.sandbox.kernel_support import find_support

SUPPORT = find_support()
ROOT = Path(__file__).parents[2]
LIMIT_S = 200.0


@pytest.mark.skipif(not SUPPORT.is_whole, reason=f"needs a sandbox: {SUPPORT.why_not}")
@pytest.mark.timeout(240)
def test_strangers_and_nodes_gain_nothing(tmp_path: Path) -> None:
    found = tmp_path / "table.json"
    command = [sys.executable, "-m", "benchmarks.attack", "--quick", "--json", str(found)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=LIMIT_S)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    rows = json.loads(found.read_text())
    assert {row["by"] for row in rows} == {"stranger", "node", "-"}
    assert all(row["gained"].startswith("nothing: ") for row in rows)
