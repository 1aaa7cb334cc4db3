"""Limits of the kernel for one process, which all that it starts inherits."""

import resource
from pathlib import Path

# For connections to all others of a large generation, data loaders and libraries.
OPEN_FILES = 4096
# More processes and threads than the whole machine has now; the limit counts those of the user, all of them.
MORE_TASKS = 4096


def limit_always() -> None:
    """No core dump, which would write the job's memory to the disk, and no more open files than it needs."""
    _lower(resource.RLIMIT_CORE, 0)
    _lower(resource.RLIMIT_NOFILE, OPEN_FILES)


def limit_resources(file_limit_bytes: int, memory_limit_bytes: int) -> None:
    """Limits each file that is written, private memory beyond what there is now (0: neither), and tasks.

    Memory that is written to, not addresses: torch and CUDA reserve far more of those than they use.
    """
    _lower(resource.RLIMIT_NPROC, _tasks() + MORE_TASKS)
    if file_limit_bytes:
        _lower(resource.RLIMIT_FSIZE, file_limit_bytes)
    if memory_limit_bytes:
        _lower(resource.RLIMIT_DATA, _private_bytes() + memory_limit_bytes)


def _lower(kind: int, limit: int) -> None:
    _, highest = resource.getrlimit(kind)
    limit = limit if highest == resource.RLIM_INFINITY else min(limit, highest)
    resource.setrlimit(kind, (limit, limit))


def _tasks() -> int:
    # "0.52 0.58 0.59 1/467 12345": one of 467 runs.
    return int(Path("/proc/loadavg").read_text().split()[3].partition("/")[2])


def _private_bytes() -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmData:"):
            return int(line.split()[1]) * 1024
    return 0
