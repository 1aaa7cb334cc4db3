"""Holds one process of a script, tells it to end once it is ready, and prints what came of it.

In a process of its own, as a worker is: it ends all its children.
"""

import json
import os
import sys
import threading
from pathlib import Path

from peerloom.worker.script import script_process


def main() -> None:
    """Of a script's path and how long it may take to end, in seconds."""
    script, grace_s = Path(sys.argv[1]), float(sys.argv[2])
    script_process.TERM_GRACE_S = grace_s
    script_process.adopt_orphans()
    lines: list[str] = []
    ready = threading.Event()

    def write(printed: bytes) -> None:
        lines.extend(printed.decode().splitlines())
        if any("ready" in line for line in lines):
            ready.set()

    held = script_process.ScriptProcess(script, ["a b"], script.parent, os.environ, 1, write)
    ready.wait()
    held.end()
    print(json.dumps({"status": held.wait(), "lines": lines, "last_lines": held.last_lines}))


main()
