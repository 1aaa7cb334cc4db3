"""A node cut off: both ways, only what it sends, only what it receives.

Each node has a network namespace of its own on one bridge. A direction is cut by giving the senders a
neighbour address that nobody has: frames leave, and nobody takes them, as on a cable that was pulled. Time
counts from when all senders have it.
"""

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks.measure import ROOT, Measurement
from benchmarks.recovery.running_job import FOLLOW, RunningJob, environment
from benchmarks.recovery.series import Strike, recovery_times, told
from benchmarks.recovery.small_model import WORKERS
from peerloom.errors import PeerloomError
from peerloom.testbed import Testbed, parse_plan
from peerloom.testbed.lab import index_of, with_netlink
from peerloom.testbed.names import HOST_INTERFACE
from peerloom.testbed.needs import check_needs

NOBODY = "02:00:00:00:de:ad"
PLAN = {
    "version": 1,
    "name": "recovery",
    "backend": "netem",
    "door": False,  # as the other recoveries, on loopback
    "network": {"nodes": WORKERS + 2, "medium": "csma", "rate": "1Gbps", "mtu": 1500},
    "hosts": [{"name": f"node-{number}", "node": number} for number in range(1, WORKERS + 1)],
}
WAYS = {
    "both ways": (True, True),
    "in what it sends": (True, False),
    "in what it receives": (False, True),
}


def run(quick: bool) -> list[Measurement]:
    measured = []
    try:
        check_needs(parse_plan("recovery", json.dumps(PLAN)))
    except PeerloomError as error:
        print(f"nodes can't be cut off here: {error.message}", file=sys.stderr)
        return []
    with _running_job() as (testbed, running):
        for way, (sends, receives) in WAYS.items():
            times = recovery_times(running, 2 if quick else 10, _cut(testbed, sends, receives))
            what = f"from cutting a node off {way} to the others' next committed step"
            measured += told(what, times, None, 1.5)
    return measured


@contextmanager
def _running_job() -> Iterator[tuple[Testbed, RunningJob]]:
    environment()
    plan = parse_plan("recovery", json.dumps(PLAN))
    with (
        TemporaryDirectory(prefix="peerloom-recovery-") as state,
        Testbed(plan, Path(state)) as testbed,
    ):
        pipes: dict[str, Any] = {
            "stdin": subprocess.PIPE,
            "stdout": subprocess.PIPE,
            "text": True,
            "cwd": ROOT,
        }
        running = RunningJob(testbed.popen([*FOLLOW, "Small", "gloo"], **pipes))
        running.wait_until_full()
        yield testbed, running
        running.end()


def _cut(testbed: Testbed, sends: bool, receives: bool) -> Strike:
    hosts = {host.name: host.address for host in testbed.plan.all_hosts}

    def change(node: str, command: str) -> None:
        others = [name for name in hosts if name != node]
        if sends:
            _neighbours(testbed, node, command, [hosts[name] for name in others])
        if receives:
            for name in others:
                _neighbours(testbed, name, command, [hosts[node]])

    def strike(worker: str, node: str) -> tuple[float, Callable[[], None]]:
        change(node, "replace")
        return time.time(), lambda: change(node, "del")

    return strike


def _neighbours(testbed: Testbed, host: str, command: str, addresses: list[str]) -> None:
    def change(netlink: Any) -> None:
        index = index_of(netlink, HOST_INTERFACE)
        for address in addresses:
            netlink.neigh(command, dst=address, lladdr=NOBODY, ifindex=index, state="permanent")

    with_netlink(testbed.names.host(host), change)
