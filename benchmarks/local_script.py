"""A rival's script on this machine's loopback, as torchrun would start it."""

import json
import os
import socket
import subprocess
import sys

from benchmarks.measure import ROOT

_LIMIT_S = 600.0


def local_script_ms(script: str, workers: int, asked: dict[str, object]) -> float:
    """What rank 0 of it prints; each rank has a core for itself where there are as many."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    common = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": str(workers)}
    command = [sys.executable, "-m", f"benchmarks.{script}", json.dumps(asked)]
    members = [
        subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            cwd=ROOT,
            env={**os.environ, **common, "RANK": str(rank), "OMP_NUM_THREADS": "1"},
        )
        for rank in range(workers)
    ]
    told = [member.communicate(timeout=_LIMIT_S)[0] for member in members]
    if any(member.returncode for member in members):
        raise SystemExit(f"{script} ended with {[member.returncode for member in members]}")
    return float(told[0])
