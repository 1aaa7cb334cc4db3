"""What goes through an emulated network in tests: probes, loads and measurements."""

import json
import os
import select
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from emulated_lab import Host, Network

MEASURED_S = 0.5


def reaches(sender: Host, receiver: Host, within_s: float = 30) -> bool:
    """Whether a datagram arrives; sent anew every 50 ms, as what is sent during an outage is lost."""
    with sender.udp() as out, receiver.udp() as into:
        deadline = time.monotonic() + within_s
        while time.monotonic() < deadline:
            out.sendto(b"hello", into.getsockname())
            if select.select([into], [], [], 0.05)[0]:
                return True
    return False


def silent(sender: Host, receiver: Host) -> bool:
    """Whether nothing arrives for 0.3 s, much longer than the way takes in these tests."""
    return not reaches(sender, receiver, within_s=0.3)


def round_trip_ms(network: Network, one: Host, other: Host) -> float:
    """The shortest of ten round trips."""
    with undisturbed(network):
        return one.ping_ms(other)


def carried_bits_per_s(network: Network, sender: Host, receiver: Host, size: int, allowed: float) -> float:
    """The payload that arrives a second, in datagrams of so many bytes, while the queue is never empty."""
    # Half of what the program lets wait for a link: enough for a pause of this process.
    window, count = int(max(allowed / 80, 64 * size) / 2 / size), int(allowed * MEASURED_S / 8 / size)
    with undisturbed(network), sender.udp() as out, receiver.udp() as into:
        into.settimeout(30)
        for _ in range(window):
            out.sendto(bytes(size), into.getsockname())
        into.recv(size)
        begin = time.monotonic()
        for _ in range(count):
            out.sendto(bytes(size), into.getsockname())
            into.recv(size)
        return count * size * 8 / (time.monotonic() - begin)


@contextmanager
def undisturbed(network: Network) -> Iterator[None]:
    """Other work on the machine waits for the program and for this thread: what is measured is the network.

    A program in real time that has to wait for a core is late, and a sender that has to leaves a queue empty.
    """
    threads = [int(name) for name in os.listdir(f"/proc/{network.process.pid}/task")]
    threads.append(threading.get_native_id())
    for thread in threads:
        os.sched_setscheduler(thread, os.SCHED_FIFO, os.sched_param(1))
    try:
        yield
    finally:
        for thread in threads:
            with suppress(ProcessLookupError):
                os.sched_setscheduler(thread, os.SCHED_OTHER, os.sched_param(0))


def settled(network: Network, node: int, packets: int) -> dict[str, Any]:
    """The counters of a node once it has received or dropped so many packets."""
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        counters = network.node(node)
        if counters["received_packets"] + counters["dropped_packets"] >= packets:
            return counters
    raise AssertionError(f"node {node} never saw {packets} packets: {counters}")


def all_send(network: Network) -> bool:
    """Whether ten more packets enter the network at each node within 30 s, while something loads it."""
    before = network.do("stats")["nodes"]
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        pairs = zip(before, network.do("stats")["nodes"], strict=True)
        if all(now["sent_packets"] >= old["sent_packets"] + 10 for old, now in pairs):
            return True
    return False


def drained(network: Network) -> None:
    """Returns when nothing has arrived anywhere for 0.2 s, so that no queue holds anything."""
    last, since = -1, 0.0
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        stats = network.do("stats")
        received = sum(node["received_packets"] for node in stats["nodes"])
        if received != last:
            last, since = received, stats["simulated_s"]
        elif stats["simulated_s"] > since + 0.2:
            return
    raise AssertionError("the network never came to rest")


@contextmanager
def flooded(hosts: list[Host], bits_per_s: float) -> Iterator[None]:
    """Each host sends so much to the next one."""
    stop = threading.Event()
    size, tick_s = 8900, 0.005
    burst = max(1, round(bits_per_s * tick_s / 8 / size))
    sockets = [host.udp() for host in hosts]

    def flood() -> None:
        while not stop.wait(tick_s):
            for out, into in zip(sockets, sockets[1:] + sockets[:1], strict=True):
                for _ in range(burst):
                    out.sendto(bytes(size), into.getsockname())

    thread = threading.Thread(target=flood)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()
        for each in sockets:
            each.close()


def tcp_bits_per_s(network: Network, sender: Host, receiver: Host) -> float:
    """What iperf3's receiver sees in the time after the first second."""
    with undisturbed(network):  # iperf3 inherits that
        server = subprocess.Popen(
            receiver.namespace.command("iperf3", "-s", "-1", "--forceflush"),
            stdout=subprocess.PIPE,
            text=True,
        )
        assert server.stdout is not None
        while "listening" not in server.stdout.readline():
            pass
        call = ("iperf3", "-c", receiver.address, "-t", "1.5", "-O", "1", "-J")
        report = json.loads(sender.namespace.run(*call))
        server.communicate(timeout=20)
        return float(report["end"]["sum_received"]["bits_per_second"])
