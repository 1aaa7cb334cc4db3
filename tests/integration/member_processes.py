"""Ranks as processes of their own: each is told once, by a line of JSON, and prints lines of JSON."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.entry_hub import EntryHub


def printed_by_ranks(
    script: Path, told: Mapping[str, Any], ranks: int, folder: Path, deadline_s: float
) -> tuple[list[list[Any]], list[str]]:
    """What so many ranks of `script` printed, a list of values each, and what they logged.

    Each is told the same, and its `rank`, and the `hub` in `folder` through which they meet. All have to end
    with 0 by the deadline.
    """
    hub = EntryHub(folder / "hub")
    environment = {**os.environ, "PYTHONPATH": str(script.parents[2])}
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    start = partial(subprocess.Popen, [sys.executable, str(script)], text=True, env=environment, **pipes)
    processes = [start() for _ in range(ranks)]
    try:
        for rank, process in enumerate(processes):
            process.stdin.write(json.dumps({**told, "rank": rank, "hub": str(hub.path)}) + "\n")
            process.stdin.flush()
        ends = [process.communicate(timeout=deadline_s) for process in processes]
    finally:
        for process in processes:
            process.kill()
            process.wait()
        hub.close()
    assert [process.returncode for process in processes] == [0] * ranks, ends
    return [[json.loads(line) for line in output.splitlines()] for output, _ in ends], [
        log for _, log in ends
    ]
