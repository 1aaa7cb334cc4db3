"""A worker's relay: a port for the relays of the other workers, and one generation's links after the other.

A relay that dials says which generation it comes for, which rank it is, and whether its gloo or its mesh
wants the connection; a mesh takes it as it is. Gloo listens on loopback alone, at an address of its own for
each rank: by their order gloo decides which of two members connects.
"""

import socket
import ssl
import struct
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path

from peerloom.errors import UnavailableError
from peerloom.kit.identity import Identity
from peerloom.kit.logs import get_logger
from peerloom.worker.assignment import Assignment
from peerloom.worker.group.entrance import Entrance
from peerloom.worker.group.relay.link import RelayLink, quick, shut
from peerloom.worker.group.relay.reached import forwarded
from peerloom.worker.group.relay.tls import HANDSHAKE_S, JobTls, TlsLink

MAX_RANK = (1 << 16) - 2
GLOO, MESH = 0, 1
_GREETING = struct.Struct("!IHH")  # generation, GLOO or MESH, rank
_log = get_logger()


def loopback_of(rank: int) -> str:
    """Where rank's gloo listens, and where others on the same machine reach it: 127.x.y.1."""
    assert 0 <= rank <= MAX_RANK, "there are addresses for so many"
    return f"127.{rank + 1 >> 8}.{rank + 1 & 255}.1"


def host_of(agent_address: str, interface: str) -> str:
    """Where the others reach this worker: at its node's address, or, when no interface carries that (NAT), at
    that of the machine's own name, as gloo does.
    """
    if interface:
        return agent_address.rpartition(":")[0]
    try:
        return socket.gethostbyname(socket.gethostname())
    except OSError:
        return agent_address.rpartition(":")[0]


def open_relay(assignment: Assignment) -> "Relay | None":
    """The worker's relay; None where its gradients may travel in the clear.

    Raises UnavailableError when it can't listen, ConfigurationError for an identity that can't be used.
    """
    if not assignment.identity or assignment.plain_collectives:
        return None
    tls = JobTls(Identity(Path(assignment.identity)), assignment.job_id)
    forward = partial(forwarded, assignment) if assignment.is_relayed else None
    return Relay(host_of(assignment.agent_address, assignment.interface), tls, forward)


class Relay:
    """Listens at a free port of `host` for relays of the same job. `address` is host:port.

    `forward` asks where others reach a port of ours; None: here. Raises UnavailableError if it can't listen.
    """

    def __init__(self, host: str, tls: JobTls, forward: Callable[[int], str] | None = None) -> None:
        self.tls, self.forward = tls, forward
        self._lock = threading.Lock()
        self._generations: dict[int, RelayedGeneration] = {}
        try:
            self._entrance = Entrance(host, "relay", self._greet)
        except OSError as error:
            raise UnavailableError(f"can't listen on {host} for the job's other workers: {error}") from error
        self.address = self._entrance.address

    def open(self, generation: int, rank: int, nodes: Sequence[str]) -> "RelayedGeneration":
        """This worker's part in a generation, until it is closed; `nodes` has the node of each rank."""
        opened = RelayedGeneration(rank, generation, nodes, self.reached_at, self.tls, self._forget)
        with self._lock:
            self._generations[generation] = opened
        return opened

    def reached_at(self) -> str:
        """Where the others' relays reach this one. Raises UnavailableError while nobody does."""
        return self.address if self.forward is None else self.forward(int(self.address.rpartition(":")[2]))

    def close(self) -> None:
        """Lets nobody in any more; links go on."""
        self._entrance.close()

    def _forget(self, generation: int) -> None:
        with self._lock:
            self._generations.pop(generation, None)

    def _greet(self, connection: socket.socket) -> Callable[[], object] | None:
        tls = self.tls.accept(connection)
        connection.settimeout(HANDSHAKE_S)
        number, wanted, rank = _GREETING.unpack(tls.receive_exactly(_GREETING.size))
        connection.settimeout(None)
        with self._lock:
            found = self._generations.get(number)
        if found is None:
            connection.close()
            return None
        found.check_peer(rank, tls)
        if wanted == MESH:
            found.take_for_mesh(tls, rank)
            return None
        return partial(found.take, tls)


class RelayedGeneration:
    """One generation's links: those that others dial, and those that our gloo opens to others.

    Gloo listens at `host`, and `reached_at` says where the others' relays reach ours. `nodes` has the node of
    each rank.
    """

    def __init__(
        self,
        rank: int,
        generation: int,
        nodes: Sequence[str],
        reached_at: Callable[[], str],
        tls: JobTls,
        forget: Callable[[int], object],
    ) -> None:
        self._nodes = list(nodes)
        self.rank, self.reached_at, self.host = rank, reached_at, loopback_of(rank)
        self._generation, self._tls, self._forget = generation, tls, forget
        self._lock = threading.Lock()
        self._open: set[socket.socket | RelayLink] = set()
        self._is_closed = False
        self._gloo_port = 0
        self._greet_mesh: Callable[[TlsLink, int], object] | None = None

    def serve(self, port: int) -> None:
        """Our gloo listens at this port of `host`."""
        self._gloo_port = port

    def serve_mesh(self, greet: Callable[[TlsLink, int], object]) -> None:
        """Our mesh takes connections, with their ranks. `greet` raises OSError, EOFError or ValueError."""
        self._greet_mesh = greet

    def port_to(self, rank: int, address: str) -> int:
        """A port at `loopback_of(rank)` whose callers reach that rank, whose relay is at `address`."""
        listener = socket.create_server((loopback_of(rank), 0))
        if self._enter(listener):
            arguments = (listener, rank, address)
            threading.Thread(target=self._dial_for, args=arguments, name="relay-out", daemon=True).start()
            return int(listener.getsockname()[1])
        listener.close()
        raise RuntimeError("ProcessGroup: the generation is over")

    def check_peer(self, rank: int, tls: TlsLink) -> None:
        """Raises OSError unless the peer's certificate is of a worker on the node of that rank.

        Any node gets certificates for workers of any job, but of its own workers alone.
        """
        expected = self._nodes[rank] if rank < len(self._nodes) else ""
        if not expected or tls.node() != expected:
            raise ssl.SSLError(f"the peer is no worker of rank {rank}'s node")

    def take(self, tls: TlsLink) -> None:
        """Another relay has dialled: its connection is carried to our gloo, in this thread, to its end."""
        try:
            gloo = socket.create_connection((self.host, self._gloo_port), HANDSHAKE_S)
        except OSError as error:
            _log.warning("relay_without_gloo", generation=self._generation, reason=str(error))
            tls.socket.close()
            return
        self._carry(gloo, tls)

    def take_for_mesh(self, tls: TlsLink, rank: int) -> None:
        """Another mesh has dialled. Raises ValueError when there is none here, and what `serve_mesh` says."""
        if self._greet_mesh is None:
            raise ValueError("this generation has no mesh")
        self._greet_mesh(tls, rank)

    def dial(self, rank: int, address: str, wanted: int) -> TlsLink:
        """A connection to that rank's relay, which is at `address`. Raises OSError or ValueError."""
        host, _, port = address.rpartition(":")
        connection = socket.create_connection((host.strip("[]"), int(port)), HANDSHAKE_S)
        try:
            tls = self._tls.dial(connection)
            self.check_peer(rank, tls)
            tls.sendall(memoryview(_GREETING.pack(self._generation, wanted, self.rank)))
        except OSError:
            connection.close()
            raise
        return tls

    def end(self) -> None:
        """Takes no more connections; those that are open end when gloo closes them."""
        self._forget(self._generation)
        with self._lock:
            for one in [one for one in self._open if isinstance(one, socket.socket)]:
                shut(one)

    def close(self) -> None:
        """Ends all links at once, those to come too."""
        with self._lock:
            self._is_closed = True
            for one in self._open:
                if isinstance(one, RelayLink):
                    one.close()
        self.end()

    def _dial_for(self, listener: socket.socket, rank: int, address: str) -> None:
        with suppress(OSError):
            while True:
                gloo, _ = listener.accept()
                gloo.settimeout(None)
                arguments = (gloo, rank, address)
                threading.Thread(target=self._dial, args=arguments, name="relay-out", daemon=True).start()
        self._leave(listener)
        listener.close()

    def _dial(self, gloo: socket.socket, rank: int, address: str) -> None:
        try:
            tls = self.dial(rank, address, GLOO)
        except (OSError, ValueError) as error:
            _log.warning("relay_not_reached", address=address, reason=str(error))
            gloo.close()  # gloo sees that its peer is gone
            return
        self._carry(gloo, tls)

    def _carry(self, gloo: socket.socket, tls: TlsLink) -> None:
        gloo.settimeout(None)
        quick(gloo)
        quick(tls.socket)
        link = RelayLink(gloo, tls)
        if not self._enter(link):
            link.close()
        link.run()
        self._leave(link)

    def _enter(self, one: socket.socket | RelayLink) -> bool:
        with self._lock:
            if not self._is_closed:
                self._open.add(one)
            return not self._is_closed

    def _leave(self, one: socket.socket | RelayLink) -> None:
        with self._lock:
            self._open.discard(one)
