"""Which way to synchronise suits your network? Predicted from its figures, before anything is trained.

    python examples/choose_sync.py           asks no system

Four workers, 11 million parameters, a second of computing a batch: on a LAN, and over lines at home. What
saves bytes may cost quality: docs/synchronisation.md.
"""

import json
import subprocess
import sys

METHODS = ("topology=ring", "topology=direct", "codec=fp16", "codec=int8", "codec=topk:0.01", "diloco")
NETWORKS = {"LAN": ("1Gbps", "100us"), "home": ("20Mbps", "20ms")}


def seconds_a_batch(method: str, rate: str, delay: str) -> float:
    given = ["--workers", "4", "--parameters", "11M", "--compute", "1s", "--rate", rate, "--delay", delay]
    command = [sys.executable, "-m", "peerloom.cli", "sync", "explain", method, *given, "-o", "json"]
    answer = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
    return float(answer["prediction"]["step_s"])


print(f"{'seconds a batch':20}" + "".join(f"{name:>10}" for name in NETWORKS))
for method in METHODS:
    predicted = [seconds_a_batch(method, *network) for network in NETWORKS.values()]
    print(f"{method:20}" + "".join(f"{step:10.2f}" for step in predicted))
