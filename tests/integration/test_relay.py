"""Aim: what gloo sends travels by TLS between workers of one job, and nobody else gets in or reads it.

Method: groups in threads of this process, each with a relay of its own; a tap on the way keeps every byte.
"""

import json
import socket
import ssl
import struct
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, suppress
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import torch
from made_identities import Signer
from safetensors.torch import save
from torch.distributed import ProcessGroupGloo

from benchmarks.entry_hub import EntryHub, HubEntries
from peerloom.worker.assignment import Assignment, Work
from peerloom.worker.group.entrance import STRANGERS_OF_HOST
from peerloom.worker.group.relay.link import shut
from peerloom.worker.group.relay.relay import (
    Relay,
    RelayedGeneration,
    loopback_of,
    open_relay,
)
from peerloom.worker.group.relay.store import RelayedStore
from peerloom.worker.group.relay.tls import JobTls
from peerloom.worker.joining.streaming import StateDonor, StateReceiver

NODES = ["node-1"] * 3  # where the ranks' workers run
LIMIT_S = 30.0
PATTERN = b"a known parameter pattern 012345"
COPIES = 2048
TENSOR = torch.frombuffer(bytearray(PATTERN * COPIES), dtype=torch.int32)


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[EntryHub]:
    with closing(EntryHub(tmp_path / "hub")) as opened:
        yield opened


@pytest.fixture
def signer(tmp_path: Path) -> Signer:
    return Signer(tmp_path / "identities")


class Tap:
    """A port that passes connections on to `target`, and keeps all bytes of both directions."""

    def __init__(self, target: int, seen: list[bytes]) -> None:
        self._target, self._seen = target, seen
        self._pairs = ExitStack()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        self._thread = threading.Thread(target=self._accept, daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._thread.join(LIMIT_S)
        self._listener.close()
        self._pairs.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                near = self._pairs.enter_context(self._listener.accept()[0])
                far = socket.create_connection(("127.0.0.1", self._target))
                self._pairs.enter_context(far)
                for source, sink in ((near, far), (far, near)):
                    carrying = threading.Thread(target=self._carry, args=(source, sink), daemon=True)
                    self._pairs.callback(carrying.join, LIMIT_S)
                    self._pairs.callback(shut, source)
                    carrying.start()

    def _carry(self, source: socket.socket, sink: socket.socket) -> None:
        with suppress(OSError):
            while piece := source.recv(65536):
                self._seen.append(piece)
                sink.sendall(piece)
            sink.shutdown(socket.SHUT_WR)


class PlainLink:
    """A connection with no TLS, as a relay would use it."""

    def __init__(self, connection: socket.socket) -> None:
        self.socket = connection
        self.recv_into, self.sendall = connection.recv_into, connection.sendall
        self.receive_exactly = connection.recv

    def node(self) -> str:
        return NODES[0]


class NoTls(JobTls):
    """Shows that the tap sees what there is to see."""

    def accept(self, connection: socket.socket) -> Any:
        return PlainLink(connection)

    def dial(self, connection: socket.socket) -> Any:
        return PlainLink(connection)


@pytest.fixture
def tap() -> Iterator[Callable[[int, list[bytes]], int]]:
    """Makes taps: a port from that to which it passes on, and where it keeps what passes."""
    with ExitStack() as opened:

        def make(target: int, seen: list[bytes]) -> int:
            made = Tap(target, seen)
            opened.callback(made.close)
            return made.port

        yield make


def reduce_together(hub: EntryHub, members: list[RelayedGeneration]) -> list[torch.Tensor]:
    """What each member has after an all-reduce of the pattern by rank 0 and zeros by the others."""

    def member(rank: int) -> torch.Tensor:
        gloo: Any = ProcessGroupGloo
        options = gloo._Options()
        options._timeout = timedelta(seconds=LIMIT_S)
        options._devices = [gloo.create_device(hostname=members[rank].host)]
        tensor = TENSOR.clone() if rank == 0 else torch.zeros_like(TENSOR)
        with closing(HubEntries(str(hub.path))) as entries:
            store = RelayedStore(entries.of(1), LIMIT_S, members[rank])
            gloo(store, rank, len(members), options).allreduce([tensor]).wait()
        return tensor

    with ThreadPoolExecutor(len(members)) as threads:
        return list(threads.map(member, range(len(members))))


@pytest.mark.parametrize("is_tls", [True, False])
def test_gradients_between_relays_are_not_to_be_read_on_the_way(
    hub: EntryHub, signer: Signer, tap: Callable[[int, list[bytes]], int], is_tls: bool
) -> None:
    """Every byte between them passes a tap; without TLS it sees the pattern."""
    seen, opened = list[bytes](), list[RelayedGeneration]()
    for rank in range(3):
        kind = JobTls if is_tls else NoTls
        relay = Relay("127.0.0.1", kind(signer.worker(f"worker-{rank}", "job-1"), "job-1"))
        relay.address = f"127.0.0.1:{tap(int(relay.address.rpartition(':')[2]), seen)}"
        opened.append(relay.open(1, rank, NODES))
    assert all(torch.equal(result, TENSOR) for result in reduce_together(hub, opened))
    assert sum(map(len, seen)) > len(PATTERN) * COPIES, "the tensor went this way"
    assert (PATTERN in b"".join(seen)) == (not is_tls)
    for one in opened:
        one.close()


@pytest.fixture
def relay(signer: Signer) -> Iterator[Relay]:
    opened = Relay("127.0.0.1", JobTls(signer.worker("worker-1", "job-1"), "job-1"))
    yield opened
    opened.close()


def connection_to(relay: Relay) -> socket.socket:
    return socket.create_connection(("127.0.0.1", int(relay.address.rpartition(":")[2])), LIMIT_S)


def after_the_handshake(relay: Relay, tls: JobTls) -> bytes:
    """What a relay answers to one who comes for generation 1: nothing, before it closes."""
    with connection_to(relay) as connection:
        link = tls.dial(connection)
        link.sendall(struct.pack("!II", 1, 0))
        connection.settimeout(LIMIT_S)
        return link.receive_exactly(1)


def test_only_workers_of_the_same_job_get_to_gloo(tmp_path: Path, signer: Signer, relay: Relay) -> None:
    with socket.create_server((loopback_of(1), 0)) as gloo:
        gloo.settimeout(LIMIT_S)
        relay.open(1, 1, NODES).serve(gloo.getsockname()[1])
        foreign = Signer(tmp_path / "elsewhere", serial=2)
        node = JobTls(signer.node("node-1"), "job-1")
        other_job = JobTls(signer.worker("worker-9", "job-2"), "job-1")
        # Any node gets a certificate for a worker of any job, as long as it is a worker of its own.
        elsewhere = JobTls(signer.worker("worker-0", "job-1", node="node-9"), "job-1")
        unsigned = JobTls(foreign.worker("worker-2", "job-1"), "job-1")
        for stranger in (node, other_job, elsewhere, unsigned):
            with pytest.raises((ssl.SSLError, ConnectionError, EOFError)):
                after_the_handshake(relay, stranger)
        with connection_to(relay) as member:
            link = JobTls(signer.worker("worker-2", "job-1"), "job-1").dial(member)
            link.sendall(struct.pack("!II", 1, 0) + b"hello gloo")
            carried, _ = gloo.accept()  # had another got through, it would be the first here
            with carried:
                carried.settimeout(LIMIT_S)
                assert carried.recv(10, socket.MSG_WAITALL) == b"hello gloo"


def test_who_dials_takes_no_other_job_s_relay_for_its_own(signer: Signer, relay: Relay) -> None:
    other = JobTls(signer.worker("worker-2", "job-2"), "job-2")
    with connection_to(relay) as connection, pytest.raises(ssl.SSLCertVerificationError):
        other.dial(connection)


def test_a_generation_that_is_over_is_reached_no_more(signer: Signer, relay: Relay) -> None:
    opened = relay.open(1, 1, NODES)
    opened.close()
    with pytest.raises((ssl.SSLError, ConnectionError, EOFError)):
        after_the_handshake(relay, JobTls(signer.worker("worker-2", "job-1"), "job-1"))


def test_strangers_who_say_nothing_keep_no_member_out(signer: Signer, relay: Relay) -> None:
    """A host at its limit gives up one of its own, the one that came first."""
    silent = [connection_to(relay) for _ in range(STRANGERS_OF_HOST + 5)]
    with socket.create_server((loopback_of(1), 0)) as gloo, connection_to(relay) as member:
        gloo.settimeout(LIMIT_S)
        relay.open(1, 1, NODES).serve(gloo.getsockname()[1])
        link = JobTls(signer.worker("worker-2", "job-1"), "job-1").dial(member)
        link.sendall(struct.pack("!II", 1, 0))
        gloo.accept()[0].close()
    for one in silent:
        one.close()


def test_the_state_that_a_newcomer_gets_comes_by_tls_from_its_own_job(
    signer: Signer, tap: Callable[[int, list[bytes]], int]
) -> None:
    def job_tls(number: int, job: str) -> JobTls:
        return JobTls(signer.worker(f"worker-{number}", job), job)

    donor = StateDonor("127.0.0.1", job_tls(1, "job-1"))
    donor.give(lambda: save({"weight": TENSOR}))
    seen = list[bytes]()
    host, port, token = json.loads(donor.address())
    address = json.dumps([host, tap(port, seen), token]).encode()
    assert torch.equal(received(StateReceiver(address, job_tls(2, "job-1")))["weight"], TENSOR)
    assert sum(map(len, seen)) > len(PATTERN) * COPIES
    assert PATTERN not in b"".join(seen)
    assert token.encode() not in b"".join(seen)
    assert bytes.fromhex(token) not in b"".join(seen)
    assert "didn't come" in refused(StateReceiver(address, job_tls(3, "job-2")))
    donor.close()


def received(receiver: StateReceiver) -> dict[str, torch.Tensor]:
    deadline_s = time.monotonic() + LIMIT_S
    while (tensors := receiver.take()) is None:
        assert not receiver.failure, receiver.failure
        assert time.monotonic() < deadline_s
        threading.Event().wait(0.01)
    return tensors


def refused(receiver: StateReceiver) -> str:
    deadline_s = time.monotonic() + LIMIT_S
    while not receiver.failure:
        assert time.monotonic() < deadline_s
        threading.Event().wait(0.01)
    return receiver.failure


def test_only_an_identity_without_the_owner_s_leave_makes_a_relay(signer: Signer) -> None:
    path, work = str(signer.worker("worker-1", "job-1").path), Work("127.0.0.1:1", "digits")
    plain = Assignment("worker-1", "job-1", work, "127.0.0.1:1", 0, "cpu", 0, "lo", 1, "", "5" * 64)
    secured = replace(plain, identity=path)
    assert open_relay(plain) is None
    assert open_relay(replace(secured, plain_collectives=True)) is None
    relay = open_relay(secured)
    assert relay is not None
    relay.close()
