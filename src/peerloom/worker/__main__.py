"""`python -m peerloom.worker`: imports everything, then forks workers, which get an assignment and train."""

import os
import sys
from pathlib import Path

from peerloom.worker.agent_line import AgentLine
from peerloom.worker.assignment import Assignment
from peerloom.worker.fork_server import serve
from peerloom.worker.warm import import_all_that_is_slow


def work() -> int:
    """Runs one worker; 0 when the job ended, 1 when this worker can't go on."""
    line = sys.stdin.readline()
    if not line:
        return 0
    assignment = Assignment.from_json(line)
    _redirect_output(Path(assignment.log_path))
    agent = AgentLine()
    if assignment.interface:  # else no interface carries the node's address (NAT): let the library choose
        os.environ["GLOO_SOCKET_IFNAME"] = os.environ["NCCL_SOCKET_IFNAME"] = assignment.interface
    if os.environ.get("PEERLOOM_WORKERS_SHARE_CARDS"):
        # For tests on one card: NCCL refuses two ranks on it unless they seem to be different hosts.
        os.environ["NCCL_HOSTID"] = assignment.worker_id

    from peerloom.kit.logs import configure_logs
    from peerloom.worker.run import run_worker

    configure_logs("worker")
    return run_worker(assignment, agent)


def _redirect_output(log_path: Path) -> None:
    log_path.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(log_path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.dup2(descriptor, 1)
    os.dup2(descriptor, 2)
    os.close(descriptor)


if __name__ == "__main__":
    import_all_that_is_slow()
    serve(work)
