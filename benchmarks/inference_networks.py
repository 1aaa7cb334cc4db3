"""The sweep of `inference_sweep` over emulated networks: the client and the nodes are apart by ns-3's links.

Needs root and ns-3, else there are no such figures. As a program it is the client, inside the testbed's
control host: `python -m benchmarks.inference_networks MODEL ROUNDS NETWORK` prints the measurements as JSON.
"""

import asyncio
import json
import subprocess
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path

from benchmarks.inference_sweep import sweep
from benchmarks.measure import ROOT, Measurement, again
from peerloom import AsyncClient
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


def measure(model: Path, rounds: int) -> list[Measurement]:
    """All networks, one after the other; none where this machine can't emulate them."""
    found: list[Measurement] = []
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


def _inside(testbed: Testbed, model: Path, rounds: int, network: str) -> list[Measurement]:
    command = [sys.executable, "-m", "benchmarks.inference_networks", str(model), str(rounds), network]
    process = testbed.popen(command, stdout=subprocess.PIPE, cwd=ROOT)
    told, _ = process.communicate(timeout=LIMIT_S)
    if process.returncode:
        raise RuntimeError(f"the client over {network} ended with status {process.returncode}")
    return [again(one) for one in json.loads(told)]


async def _ask(model: Path, rounds: int, network: str) -> list[Measurement]:
    async with AsyncClient() as client:
        kept = await client.artifacts.put(model, kind="model", copies=NODES)
        return await sweep(client, kept.digest, rounds, network, SIZES)


if __name__ == "__main__":
    measured = asyncio.run(_ask(Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3]))
    print(json.dumps([asdict(one) for one in measured]))
