"""The sweep of `inference_sweep` over emulated networks: the client and the nodes are apart by ns-3's links.

Needs root and ns-3, else there are no such figures. The client runs inside the testbed's control host.
"""

import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks.inference_client import Asking, told
from benchmarks.inference_sweep import Questions
from benchmarks.measure import ROOT
from peerloom.errors import PeerloomError
from peerloom.testbed import Testbed, parse_plan
from peerloom.testbed.needs import check_needs

NODES = 3
NETWORKS = {
    "100 Mbit/s and 2 ms a link": "rate: 100Mbps, delay: 2ms",
    "8 Mbit/s and 20 ms a link": "rate: 8Mbps, delay: 20ms",
}
SIZES = (1, 64, 1024)
LIMIT_S = 300.0


def ask(model: Path, rounds: int) -> list[Questions]:
    """All networks, one after the other; none where this machine can't emulate them."""
    found: list[Questions] = []
    for number, (name, link) in enumerate(NETWORKS.items()):
        lines = [f"  - {{name: host-{at}, node: {at}, slots: 0}}" for at in range(1, NODES + 1)]
        network = f"network: {{nodes: {NODES + 1}, medium: wan, mtu: 1500, {link}}}"
        # Without a door, as the sweep without a network.
        head = ["version: 1", f"name: inference-{number}", "door: false", network]
        text = "\n".join([*head, "hosts:", *lines, ""])
        plan = parse_plan("inference", text)
        try:
            check_needs(plan)
        except PeerloomError as error:
            print(f"no inference over emulated networks: {error.message}", file=sys.stderr)
            return found
        with tempfile.TemporaryDirectory() as folder, Testbed(plan, Path(folder)) as testbed:
            found += _inside(testbed, model, rounds, name)
    return found


def _inside(testbed: Testbed, model: Path, rounds: int, network: str) -> list[Questions]:
    asking = Asking(str(model), NODES, rounds, network, SIZES, (1, 8, 8))
    process = testbed.popen(asking.command, stdout=subprocess.PIPE, cwd=ROOT)
    printed, _ = process.communicate(timeout=LIMIT_S)
    if process.returncode:
        raise RuntimeError(f"the client over {network} ended with status {process.returncode}")
    return told(printed)
