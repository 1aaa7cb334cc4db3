"""Hosts in private network namespaces behind taps, and the ns-3 program between them."""

import contextlib
import ctypes
import json
import os
import shutil
import signal
import socket
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, cast

CLONE_NEWNET = 0x40000000
OFFLOADS_OFF = ("tx", "off", "tso", "off", "gso", "off", "gro", "off")
LIBC = ctypes.CDLL(None, use_errno=True)


def needs() -> str:
    """What is missing to make a lab, or nothing."""
    for program in ("ip", "ethtool", "nsenter", "ping", "iperf3"):
        if shutil.which(program) is None:
            return f"the program {program} is missing"
    return "" if Path("/dev/net/tun").exists() else "/dev/net/tun is missing"


def _call(name: str, *arguments: int) -> None:
    if getattr(LIBC, name)(*arguments) != 0:
        error = ctypes.get_errno()
        raise OSError(error, f"{name}: {os.strerror(error)}")


class Namespace:
    """A network namespace that lives as long as a sleeping process in it."""

    def __init__(self) -> None:
        # Popen returns after the exec, so the namespace is there.
        self._holder = subprocess.Popen(
            ["sleep", "infinity"], preexec_fn=lambda: _call("unshare", CLONE_NEWNET)
        )
        self.pid = self._holder.pid

    def command(self, *arguments: str | Path) -> list[str]:
        """A command line that runs another one in here."""
        return ["nsenter", f"--net=/proc/{self.pid}/ns/net", *map(str, arguments)]

    def run(self, *arguments: str, stdin: str = "", timeout_s: float = 30) -> str:
        done = subprocess.run(
            self.command(*arguments), input=stdin, capture_output=True, text=True, timeout=timeout_s
        )
        assert done.returncode == 0, f"{arguments}: {done.stdout}{done.stderr}"
        return done.stdout

    def ip(self, *lines: str) -> None:
        self.run("ip", "-batch", "-", stdin="\n".join(lines) + "\n")

    @contextlib.contextmanager
    def entered(self) -> Iterator[None]:
        """Sockets that this thread opens inside belong to this namespace, also afterwards."""
        with open("/proc/thread-self/ns/net") as home, open(f"/proc/{self.pid}/ns/net") as there:
            _call("setns", there.fileno(), CLONE_NEWNET)
            try:
                yield
            finally:
                _call("setns", home.fileno(), CLONE_NEWNET)

    def close(self) -> None:
        self._holder.kill()
        self._holder.wait()


class Host:
    """A machine with one interface, eth0."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.tap = f"pl{number}"
        self.mac = f"02:00:00:00:01:{number:02x}"
        self.address = f"10.77.0.{number + 1}"
        self.namespace = Namespace()

    def udp(self, port: int = 0) -> socket.socket:
        with self.namespace.entered():
            made = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
            made.bind((self.address, port))
            return made

    def ping_ms(self, other: "Host", size: int = 56) -> float:
        """The shortest of ten round trips."""
        quick = ["ping", "-q", "-c", "10", "-i", "0.03", "-W", "2"]
        out = self.namespace.run(*quick, "-s", str(size), "-M", "do", other.address)
        return float(out.split("rtt min/avg/max/mdev = ")[1].split("/")[0])


class Lab:
    """One namespace with all bridges and taps, in which the program runs, and one for each host."""

    def __init__(self, hosts: int) -> None:
        self.inside = Namespace()
        self.hosts = [Host(number) for number in range(hosts)]

    def wire(self) -> None:
        quiet = "sysctl -qw net.ipv6.conf.all.disable_ipv6=1 net.ipv6.conf.default.disable_ipv6=1"
        self.inside.run(
            "sh", "-c", f"{quiet}; f=/proc/sys/net/bridge/bridge-nf-call-iptables; ! [ -e $f ] || echo 0 > $f"
        )
        for host in self.hosts:
            host.namespace.run(*quiet.split())
            self._wire(host)
        self.set_mtu(9000)

    def _wire(self, host: Host) -> None:
        outer, bridge, tap = f"v{host.number}", f"b{host.number}", host.tap
        self.inside.ip(
            f"tuntap add dev {tap} mode tap",
            f"link add {bridge} type bridge",
            f"link add {outer} type veth peer name eth0 netns {host.namespace.pid}",
            f"link set {tap} master {bridge}",
            f"link set {outer} master {bridge}",
            *(f"link set {each} up" for each in (tap, outer, bridge)),
        )
        host.namespace.ip(
            f"link set eth0 address {host.mac}", f"addr add {host.address}/24 dev eth0", "link set eth0 up"
        )
        # Known neighbours: no ARP in the counters.
        host.namespace.ip(
            *(
                f"neigh add {other.address} lladdr {other.mac} dev eth0"
                for other in self.hosts
                if other is not host
            )
        )
        # ns-3 carries frames, not what offloads make of them.
        for namespace, interface in ((self.inside, outer), (host.namespace, "eth0")):
            namespace.run("ethtool", "-K", interface, *OFFLOADS_OFF)

    def set_mtu(self, mtu: int) -> None:
        for host in self.hosts:
            self.inside.ip(*(f"link set {kind}{host.number} mtu {mtu}" for kind in ("pl", "v", "b")))
            host.namespace.ip(f"link set eth0 mtu {mtu}")

    def start(self, program: Path, control: Path, hosts: int, flags: Mapping[str, object]) -> "Network":
        """Nodes 0 to hosts-1 have the lab's taps; mtu is set on the hosts too. A list is a repeated flag."""
        chosen = {"nodes": hosts, "mtu": 9000, "control": control, **flags}
        self.set_mtu(cast(int, chosen["mtu"]))
        chosen["tap"] = [f"{host.number}:{host.tap}:{host.mac}" for host in self.hosts[:hosts]]
        arguments = [
            f"--{name}={each}"
            for name, value in chosen.items()
            for each in (value if isinstance(value, list) else [value])
        ]
        return Network(self.inside.command(program, *arguments), control, self.hosts[:hosts])

    def close(self) -> None:
        for namespace in (self.inside, *(host.namespace for host in self.hosts)):
            namespace.close()


class Network:
    """A running ns-3 program and a connection to its control socket."""

    def __init__(self, command: list[str], control: Path, hosts: list[Host]) -> None:
        self.hosts = hosts
        self.control = control
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        first = self.process.stdout.readline()
        if first != f"control={control}\n":
            raise AssertionError(f"{command}: {first}{self.stop()}")
        self._client = self.connect()

    def connect(self) -> Any:
        """Another client: a file of lines."""
        with socket.socket(socket.AF_UNIX) as client:
            client.settimeout(20)
            client.connect(str(self.control))
            return client.makefile("rw")

    def line(self, text: str) -> dict[str, Any]:
        self._client.write(text + "\n")
        self._client.flush()
        return cast(dict[str, Any], json.loads(self._client.readline()))

    def do(self, command: str, **fields: object) -> dict[str, Any]:
        answer = self.line(json.dumps({"do": command, **fields}))
        assert answer["ok"], answer
        return answer

    def node(self, number: int) -> dict[str, Any]:
        return cast(dict[str, Any], self.do("stats")["nodes"][number])

    def stop(self, number: int = signal.SIGTERM) -> str:
        """Ends the program and says what it had written to stderr; its exit status is process.returncode."""
        if hasattr(self, "_client"):
            self._client.close()
        if self.process.returncode is not None:
            return ""
        self.process.send_signal(number)
        try:
            return self.process.communicate(timeout=20)[1]
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.communicate()
            raise
