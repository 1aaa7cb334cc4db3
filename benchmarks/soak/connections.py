"""The TCP connections of a process, in whichever network namespace it is."""

import os
from collections import Counter
from pathlib import Path

_REMOTE, _INODE = 2, 9  # fields of a line of /proc/PID/net/tcp
_NOWHERE = "0000"  # the port of the other end of what only listens


def connections(pid: int) -> Counter[str]:
    """How many it has to each address (in the kernel's form). Raises OSError where it has just ended."""
    folder = Path(f"/proc/{pid}")
    own = {link for entry in (folder / "fd").iterdir() if (link := _target(entry)).startswith("socket:[")}
    found: Counter[str] = Counter()
    for name in ("tcp", "tcp6"):
        for line in (folder / "net" / name).read_text().splitlines()[1:]:
            fields = line.split()
            if f"socket:[{fields[_INODE]}]" in own and not fields[_REMOTE].endswith(_NOWHERE):
                found[fields[_REMOTE]] += 1
    return found


def _target(entry: Path) -> str:
    try:
        return os.readlink(entry)
    except FileNotFoundError:  # it was just closed
        return ""
