"""ns-3 as the network: the program's arguments, and the line to its control socket."""

import json
import socket
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from peerloom.errors import FailedPreconditionError, UnavailableError
from peerloom.testbed import names
from peerloom.testbed.backends import NodeCount, Stats
from peerloom.testbed.names import Names
from peerloom.testbed.plan import Link, Plan
from peerloom.testbed.quantities import rate_text, time_text

ANSWER_LIMIT_S = 10.0
_LINE_LIMIT_BYTES = 4 * 1024 * 1024


def ns3_arguments(plan: Plan, its: Names, netanim: Path | None = None, pcap: Path | None = None) -> list[str]:
    """The flags of peerloom-ns3 for a plan."""
    network = plan.network
    arguments = [
        f"--nodes={network.nodes}",
        f"--medium={network.medium}",
        f"--rate={rate_text(network.default_link.rate_bits_per_s)}",
        f"--delay={time_text(network.default_link.delay_s)}",
        f"--loss={network.default_link.loss_ratio:g}",
        f"--mtu={network.mtu_bytes}",
        f"--background={rate_text(network.background_bits_per_s) if network.background_bits_per_s else 0}",
        f"--seed={network.seed}",
        f"--control={its.run_folder / 'ns3.sock'}",
    ]
    for host in plan.all_hosts:
        arguments.append(f"--tap={host.node}:{names.tap(host.node)}:{host.mac}")
        if network.medium == "wan" and host.link != network.default_link:
            arguments.append(f"--link={host.node}:{_link_text(host.link)}")
    if netanim:
        arguments.append(f"--netanim={netanim}")
    if pcap:
        arguments.append(f"--pcap={pcap}")
    return arguments


def _link_text(link: Link) -> str:
    return f"{rate_text(link.rate_bits_per_s)}:{time_text(link.delay_s)}:{link.loss_ratio:g}"


class Ns3:
    """A client of the control socket: one request, one answer, in order. Threads may share it."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._line: socket.socket | None = None

    def leave(self, nodes: Sequence[int]) -> None:
        """Takes nodes off the network."""
        self._ask("leave", nodes=list(nodes))

    def join(self, nodes: Sequence[int]) -> None:
        """Brings them back."""
        self._ask("join", nodes=list(nodes))

    def set_loss(self, nodes: Sequence[int], ratio: float) -> None:
        """Part of the frames that these nodes don't receive, 0 to 1."""
        self._ask("loss", nodes=list(nodes), ratio=ratio)

    def set_rate(self, nodes: Sequence[int], bits_per_s: float) -> None:
        """Of the nodes' access links; of a LAN only for all (no nodes named)."""
        self._ask("rate", **_of(nodes), bits_per_s=bits_per_s)

    def set_delay(self, nodes: Sequence[int], delay_s: float) -> None:
        """One way, of the nodes' access links; of a LAN only for all (no nodes named)."""
        self._ask("delay", **_of(nodes), seconds=delay_s)

    def partition(self, sets: Sequence[Sequence[int]]) -> None:
        """Nodes of different sets don't hear each other; nodes in no set hear all."""
        self._ask("partition", sets=[list(one) for one in sets])

    def heal(self) -> None:
        """Ends a partition."""
        self._ask("heal")

    def stats(self) -> Stats:
        """Counters and lags."""
        answer = self._ask("stats")
        fields = list(NodeCount.__dataclass_fields__)
        counts = tuple(NodeCount(**{name: node[name] for name in fields}) for node in answer["nodes"])
        return Stats(answer["wall_s"], answer["lag_s"], answer["lag_worst_s"], answer["cpu_s"], counts)

    def close(self) -> None:
        """Ends the line; the next call opens another."""
        with self._lock:
            self._drop()

    def _ask(self, do: str, **arguments: Any) -> dict[str, Any]:
        request = json.dumps({"do": do, **arguments}).encode() + b"\n"
        with self._lock:
            try:
                answer: dict[str, Any] = json.loads(self._exchange(request))
            except (OSError, ValueError) as error:
                self._drop()
                raise UnavailableError(
                    f"ns-3 doesn't answer at {self._path} ({error}): is it up? Its log is logs/ns3.log.",
                    reason="NS3_UNREACHABLE",
                ) from error
        if not answer.get("ok"):
            raise FailedPreconditionError(
                f"ns-3 refused to {do}: {answer.get('error', 'it gave no reason')}."
            )
        return answer

    def _exchange(self, request: bytes) -> bytes:
        if self._line is None:
            self._line = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            self._line.settimeout(ANSWER_LIMIT_S)
            self._line.connect(str(self._path))
        self._line.sendall(request)
        answer = bytearray()
        while not answer.endswith(b"\n"):
            piece = self._line.recv(65536)
            if not piece or len(answer) > _LINE_LIMIT_BYTES:
                raise OSError("it closed the line" if not piece else "its answer has no end")
            answer += piece
        return bytes(answer)

    def _drop(self) -> None:
        if self._line is not None:
            self._line.close()
            self._line = None


def _of(nodes: Sequence[int]) -> dict[str, list[int]]:
    return {"nodes": list(nodes)} if nodes else {}
