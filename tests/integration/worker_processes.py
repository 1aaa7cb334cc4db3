"""The processes of a node agent: what its workers are forked from, and the workers."""

import os
from pathlib import Path

import psutil


def workers_of(agent_pid: int) -> list[psutil.Process]:
    """Those that have a job: their output is a worker's log."""
    return [child for child in psutil.Process(agent_pid).children(recursive=True) if _has_job(child)]


def agent_of(worker_pid: int) -> int:
    """The agent's process id: that of the parent of what the worker was forked from."""
    return psutil.Process(psutil.Process(worker_pid).ppid()).ppid()


def _has_job(process: psutil.Process) -> bool:
    try:
        return Path(os.readlink(f"/proc/{process.pid}/fd/1")).name.startswith("worker-")
    except OSError:  # it has just ended
        return False
