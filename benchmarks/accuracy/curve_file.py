"""What a race tells of itself: lines of JSON, in one file for all processes of a rival's.

`host` has the number of the host whose worker is `pid` now; a process has `began` when it is about to make
its first step; `hub` has the addresses of hivemind's first peer; `accuracy` was reached after so many epochs.
`at_s` are seconds since the clock's own epoch.
"""

import json
import os
import time
from pathlib import Path
from typing import Any


def tell(path: str, kind: str, **told: Any) -> None:
    """Appends a line at once, which may be this process's last."""
    line = json.dumps({"at_s": time.time(), "kind": kind, **told}) + "\n"
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(descriptor, line.encode())
    os.close(descriptor)


def read(path: Path) -> list[dict[str, Any]]:
    """All whole lines until now, in order."""
    if not path.exists():
        return []
    whole = path.read_text().rpartition("\n")[0]
    return [json.loads(line) for line in whole.splitlines()]
