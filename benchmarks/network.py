"""What the emulated networks carry: throughput, round trips, training steps, and how long one takes to stand.

Run by `make bench-network`, as root. Hosts send to the next in a ring (iperf3, TCP), all at once. The rival
is the bare bridge on the same machine: cables and bridge without ns-3 and without shaping.
"""

import json
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import yaml

from benchmarks.measure import Goal, Measurement, measurement
from peerloom import Client, Embedded
from peerloom.testbed import Plan, Testbed, parse_plan
from peerloom.testbed.backends.netem import unshape
from peerloom.testbed.lab import with_netlink
from peerloom.testbed.needs import needs_of

BARE = "bare bridge"
MTUS = (1500, 9000, 65000)
HOSTS = (2, 5, 10)
NODES = 20
TRAINING_HOSTS = 2
_PORT = 5201
_DROP = subprocess.DEVNULL
_RATE = "10Gbps"  # of the medium: so that what limits is the emulation
_TRAINING = ("train", "digits", "--requests", "2", "--epochs", "3", "--equal-shares", "-o", "json")


@dataclass(frozen=True)
class Flow:
    """What a ring of senders reached: all hosts' bits a second, the lag in s, and ns-3's part of a core."""

    bits_per_s: float
    rtt_ms: float
    lag_s: float | None
    core_ratio: float | None


def run(quick: bool) -> list[Measurement]:
    """Throughput and round trips against MTU and hosts, then training steps, then the time to stand."""
    rounds, seconds = (1, 1.0) if quick else (5, 5.0)
    mtus, hosts = ((9000,), (2,)) if quick else (MTUS, HOSTS)
    cases = [(mtu, 5) for mtu in mtus] + [(9000, count) for count in hosts if count != 5]
    found: list[Measurement] = []
    for mtu, count in cases:
        found += _compare_carriers(mtu, count, rounds, seconds)
    found += _training(rounds)
    return [*found, *_standing(rounds)]


def profile(quick: bool) -> str:
    """None: the simulator is another program, and how busy it was is among the figures."""
    return ""


def plan_of(carrier: str, hosts: int, mtu: int, *, nodes: int = NODES, isolation: str = "namespace") -> Plan:
    """A plan whose network is csma, wan, netem or the bare bridge."""
    content = {
        "version": 1,
        "name": "bench",
        "backend": "ns3" if carrier in ("csma", "wan") else "netem",
        "door": False,  # the network is measured, and beside it loopback, which is plain
        "isolation": isolation,
        "network": {
            "nodes": nodes,
            "medium": "wan" if carrier == "wan" else "csma",
            "rate": _RATE,
            "mtu": mtu,
        },
        "hosts": [{"name": f"host-{number}", "node": number} for number in range(1, hosts + 1)],
    }
    return parse_plan("bench.yaml", yaml.safe_dump(content))


def _compare_carriers(mtu: int, hosts: int, rounds: int, seconds: float) -> list[Measurement]:
    flows: dict[str, list[Flow]] = {name: [] for name in ("csma", "wan", "netem", BARE)}
    for _ in range(rounds):
        for carrier, kept in flows.items():
            kept.append(_measure_flow(carrier, hosts, mtu, seconds))
    found = []
    for carrier in ("csma", "wan", "netem"):
        title = f"{carrier}, MTU {mtu}, {hosts} hosts of {NODES} nodes"
        goal = Goal(500, at_least=True) if (carrier, mtu, hosts) == ("csma", 9000, 5) else None
        ours, rival = flows[carrier], flows[BARE]
        found += [
            _of(
                f"throughput in all, {title}", "Mbit/s", ours, rival, lambda flow: flow.bits_per_s / 1e6, goal
            ),
            _of(f"idle round trip, {title}", "ms", ours, rival, lambda flow: flow.rtt_ms),
        ]
        if carrier != "netem":
            lags = [1000 * (flow.lag_s or 0.0) for flow in ours]
            found.append(measurement(f"worst lag, {title}", "ms", lags))
            cores = [100 * (flow.core_ratio or 0.0) for flow in ours]
            found.append(measurement(f"ns-3's part of a core, {title}", "%", cores))
    return found


def _of(
    name: str,
    unit: str,
    ours: Sequence[Flow],
    rival: Sequence[Flow],
    figure: Callable[[Flow], float],
    goal: Goal | None = None,
) -> Measurement:
    own, others = [figure(flow) for flow in ours], [figure(flow) for flow in rival]
    return measurement(name, unit, own, goal=goal, rival=BARE, rival_samples=others)


def _measure_flow(carrier: str, hosts: int, mtu: int, seconds: float) -> Flow:
    plan = plan_of(carrier, hosts, mtu)
    with tempfile.TemporaryDirectory() as folder, Testbed(plan, Path(folder), system=False) as testbed:
        if carrier == BARE:
            _unshape(testbed)
        rtt_ms = _round_trip_ms(testbed)
        before, began_s = testbed.backend.stats(), time.monotonic()
        bits_per_s = _ring(testbed, seconds)
        after, took_s = testbed.backend.stats(), time.monotonic() - began_s
    if after.cpu_s is None or before.cpu_s is None:
        return Flow(bits_per_s, rtt_ms, None, None)
    return Flow(bits_per_s, rtt_ms, after.lag_worst_s, (after.cpu_s - before.cpu_s) / took_s)


def _unshape(testbed: Testbed) -> None:
    places = [(testbed.names.host(host.name), "eth0") for host in testbed.plan.all_hosts]
    places += [(testbed.names.lab, f"port{host.node}") for host in testbed.plan.all_hosts]
    for space, interface in places:
        with_netlink(space, partial(unshape, interface=interface))


def _round_trip_ms(testbed: Testbed) -> float:
    first, second = testbed.plan.hosts[:2]
    command = ["ping", "-q", "-c", "50", "-i", "0.02", second.address]
    output, _ = testbed.popen(command, first.name, stdout=subprocess.PIPE).communicate(timeout=60)
    match = re.search(rb"= [\d.]+/([\d.]+)/", output)
    assert match, f"ping said: {output!r}"
    return float(match[1])


def _ring(testbed: Testbed, seconds: float) -> float:
    """Bits a second that all hosts received together, each sending to the next."""
    hosts = testbed.plan.hosts
    servers = [
        testbed.popen(["iperf3", "-s", "-1", "-p", str(_PORT)], host.name, stdout=_DROP, stderr=_DROP)
        for host in hosts
    ]
    try:
        clients = []
        for host, target in zip(hosts, [*hosts[1:], hosts[0]], strict=True):
            _wait_for_server(testbed, target.name)
            command = ["iperf3", "-J", "-t", f"{seconds:g}", "-p", str(_PORT), "-c", target.address]
            clients.append(testbed.popen(command, host.name, stdout=subprocess.PIPE))
        outputs = [client.communicate(timeout=seconds + 60)[0] for client in clients]
    finally:
        for server in servers:
            server.terminate()
            server.wait()
    sums = (json.loads(output)["end"]["sum_received"] for output in outputs)
    return sum(float(one["bits_per_second"]) for one in sums)


def _wait_for_server(testbed: Testbed, host: str) -> None:
    """Returns when iperf3 listens, by the kernel's table: a connection would count as its one client."""
    deadline_s = time.monotonic() + 10
    while time.monotonic() < deadline_s:
        command = ["ss", "-Hltn", f"sport = :{_PORT}"]
        output, _ = testbed.popen(command, host, stdout=subprocess.PIPE).communicate(timeout=10)
        if output.strip():
            return
        time.sleep(0.02)
    raise TimeoutError(f"iperf3 on {host} does not listen")


def _training(rounds: int) -> list[Measurement]:
    alone = [_step_ms_alone() for _ in range(rounds)]
    found = []
    for carrier in ("csma", "wan", "netem"):
        steps = [_step_ms(carrier) for _ in range(rounds)]
        title = f"training step of digits, {TRAINING_HOSTS} hosts over {carrier}, MTU 9000"
        found.append(measurement(title, "ms", steps, rival="loopback", rival_samples=alone))
    return found


def _step_ms(carrier: str) -> float:
    with (
        tempfile.TemporaryDirectory() as folder,
        Testbed(plan_of(carrier, TRAINING_HOSTS, 9000), Path(folder), log_level="error") as testbed,
    ):
        command = [sys.executable, "-m", "peerloom.cli", *_TRAINING]
        process = testbed.popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        result = json.loads(process.communicate(timeout=300)[0])
    return 1000 * float(result["compute_s_per_step"] + result["communication_s_per_step"])


def _step_ms_alone() -> float:
    with (
        tempfile.TemporaryDirectory() as folder,
        Embedded(Path(folder), (1,) * TRAINING_HOSTS, log_level="error") as system,
        Client(system.address) as client,
    ):
        result = client.train("digits", requests=2, epochs=3, equal_shares=True).result(300)
    assert result.compute_s_per_step is not None, result.reason
    assert result.communication_s_per_step is not None, "it comes with the other"
    return 1000 * (result.compute_s_per_step + result.communication_s_per_step)


def _standing(rounds: int) -> list[Measurement]:
    found = []
    for isolation, limit_s in (("namespace", 5.0), ("container", 10.0)):
        plan = plan_of("csma", 5, 9000, isolation=isolation)
        if not all(need.ok for need in needs_of(plan)):
            print(f"skipped: testbed up in {isolation}s: {needs_of(plan)[-1].found}", flush=True)
            continue
        times = [_seconds_to_stand(plan) for _ in range(rounds)]
        title = f"testbed up, {NODES} nodes, 5 hosts in {isolation}s"
        found.append(measurement(title, "s", times, goal=Goal(limit_s, at_least=False)))
    return found


def _seconds_to_stand(plan: Plan) -> float:
    with tempfile.TemporaryDirectory() as folder:
        testbed = Testbed(plan, Path(folder), log_level="error")
        began_s = time.monotonic()
        testbed.start()
        took_s = time.monotonic() - began_s
        testbed.stop()
    return took_s
