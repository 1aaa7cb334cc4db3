"""Aim: messages between workers arrive whole and in any order, and whatever goes wrong is told at once.

Method: the ranks' meshes in one process, over real sockets; a rank that misbehaves is a bare connection.
"""

import socket
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import pytest
import torch
from made_identities import Signer
from mesh_ranks import GENERATION, LIMIT_S, Ranks

from peerloom.worker.group.breaking import is_collective_failure
from peerloom.worker.group.entrance import Entrance
from peerloom.worker.group.relay.relay import Relay, RelayedGeneration
from peerloom.worker.group.relay.tls import JobTls, TlsLink
from peerloom.worker.group.waits import TensorFuture
from peerloom.worker.mesh import connecting, early
from peerloom.worker.mesh.frames import MARK, Tag, header
from peerloom.worker.mesh.greeting import TIMES, greetings
from peerloom.worker.mesh.mesh import Mesh
from peerloom.worker.mesh.mesh_link import MeshLink, OutgoingMessage, PeerConnection, PlainConnection

Start = Callable[..., list[Mesh]]


@pytest.fixture
def start(opened: ExitStack) -> Start:
    """Connects the meshes of all ranks."""

    def connect(ranks: int, relayed: list[RelayedGeneration] | None = None) -> list[Mesh]:
        meshes = Ranks(ranks, relayed).connect(ranks)
        for mesh in meshes:
            opened.callback(mesh.close)
        return meshes

    return connect


def bare(opened: ExitStack, ranks: int) -> tuple[list[Mesh], dict[int, PeerConnection]]:
    """All meshes but the last rank's, and the bare connections of that one to them."""
    all_ranks = Ranks(ranks)
    last = all_ranks.meetings[-1]
    last.begin()
    with ThreadPoolExecutor(2) as pool:
        others = pool.submit(all_ranks.connect, ranks - 1)
        wires = last.connect()
        meshes = others.result(LIMIT_S)
    for wire in wires.values():
        opened.enter_context(wire.socket)
    for mesh in meshes:
        opened.callback(mesh.close)
    return meshes, wires


def to_all(
    mesh: Mesh, rank: int, ranks: int, sequence: int, length: int
) -> tuple[TensorFuture, torch.Tensor]:
    """Begins to send `length` times 100 * rank + sequence to each other rank; what comes, by rank."""
    others = [other for other in range(ranks) if other != rank]
    own = torch.full([length], 100.0 * rank + sequence)
    came = torch.full([ranks, length], 100.0 * rank + sequence)
    done = mesh.begin(sequence, dict.fromkeys(others, own), {0: {other: came[other] for other in others}})
    return done, came


def heard(future: TensorFuture) -> object:
    ended = threading.Event()
    future.add_done_callback(lambda _: ended.set())
    assert ended.wait(LIMIT_S), "the exchange never ended"
    return future.value()


def failure(future: TensorFuture) -> str:
    reason = heard(future)
    assert isinstance(reason, str)
    return reason


def check_all_came(meshes: list[Mesh], length: int, orders: list[list[int]]) -> None:
    ranks = len(meshes)
    begun = [
        {number: to_all(mesh, rank, ranks, number, length) for number in orders[rank]}
        for rank, mesh in enumerate(meshes)
    ]
    for by_number in begun:
        for number, (done, came) in by_number.items():
            assert isinstance(heard(done), torch.Tensor)
            expected = torch.tensor([100.0 * rank + number for rank in range(ranks)])
            assert torch.equal(came, expected[:, None].expand(ranks, length))


@pytest.mark.parametrize("length", [1, 300_000])
def test_each_rank_may_begin_exchanges_in_an_order_of_its_own(start: Start, length: int) -> None:
    check_all_came(start(3), length, [[1, 2, 3], [3, 2, 1], [2, 3, 1]])


def test_nobody_goes_on_before_all_have_greeted(start: Start) -> None:
    """The last one may still be busy with what was before: until it comes the others send nothing more."""
    meshes = start(3)
    early = [greetings(mesh, rank, 3) for rank, mesh in enumerate(meshes[:2])]
    begun = [next(each) for each in early]
    assert not any(future.done() for future in begun)
    with ThreadPoolExecutor(3) as pool:
        last = pool.submit(lambda: [heard(future) for future in greetings(meshes[2], 2, 3)])
        others = [pool.submit(lambda each=each: [heard(future) for future in each]) for each in early]
        told = [*last.result(LIMIT_S), *(one for each in others for one in each.result(LIMIT_S))]
    assert all(isinstance(one, torch.Tensor) for one in [*told, *map(heard, begun)])
    assert {mesh.next_sequence() for mesh in meshes} == {TIMES + 1}, "what follows has the same numbers"


def test_who_is_lost_ends_a_greeting(start: Start) -> None:
    meshes = start(2)
    greeting = next(greetings(meshes[0], 0, 2))
    meshes[1].break_all("killed")
    assert failure(greeting).startswith(MARK)


def test_who_is_far_ahead_waits_and_loses_nothing(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of one peer 4,000 bytes are kept; three messages of 2,000 come before any exchange begins here."""
    monkeypatch.setattr(early, "EARLY_BYTES", 4_000)
    check_all_came(start(2), 500, [[1, 2, 3], [3, 1, 2]])


def test_what_is_due_in_the_second_phase_follows_by_itself(start: Start) -> None:
    """Rank 0 adds up what both others send, and nobody waits for the first phase."""
    meshes = start(3)
    parts, sums = torch.zeros(2, 4), torch.zeros(3, 4)

    def give() -> None:
        sums[0] = parts.sum(0)
        meshes[0].send(Tag(1, 1), {1: sums[0], 2: sums[0]})

    futures = [meshes[0].begin(1, {}, {0: {1: parts[0], 2: parts[1]}}, [give])]
    for rank in (1, 2):
        own = torch.full([4], float(rank))
        futures.append(meshes[rank].begin(1, {0: own}, {1: {0: sums[rank]}}))
    assert all(isinstance(heard(future), torch.Tensor) for future in futures)
    assert sums.tolist() == [[3.0] * 4] * 3


def test_phases_follow_each_other_however_early_their_messages_come(start: Start) -> None:
    """Rank 0 sends two phases at once, in the wrong order; rank 1 has something to do after each."""
    meshes, done = start(2), list[int]()
    came = torch.zeros(2, 1)
    first = meshes[0].begin(1, {}, {2: {1: torch.zeros(1)}})
    meshes[0].send(Tag(1, 1), {1: torch.full([1], 7.0)})
    meshes[0].send(Tag(1, 0), {1: torch.full([1], 6.0)})

    def end() -> None:
        done.append(2)
        meshes[1].send(Tag(1, 2), {0: torch.zeros(1)})

    steps = [lambda: done.append(int(came[0])), lambda: done.append(int(came[1])), end]
    second = meshes[1].begin(1, {}, {0: {0: came[0]}, 1: {0: came[1]}}, steps)
    assert isinstance(heard(first), torch.Tensor)
    assert isinstance(heard(second), torch.Tensor)
    assert done == [6, 7, 2]


def test_what_the_second_phase_raises_is_heard_and_is_no_lost_peer(start: Start) -> None:
    meshes = start(2)

    def fail() -> None:
        raise ValueError("not so many values")

    came = torch.zeros(1)
    future = meshes[0].begin(1, {}, {0: {1: came}}, [fail])
    meshes[1].begin(1, {0: torch.ones(1)}, {})
    assert failure(future) == "ValueError: not so many values"
    assert not is_collective_failure(RuntimeError(failure(future)))


def test_a_peer_that_dies_within_a_message_ends_what_needs_it_and_nothing_else(opened: ExitStack) -> None:
    meshes, wires = bare(opened, 3)
    future, _ = to_all(meshes[0], 0, 3, 1, 1000)
    came = torch.zeros(4)
    without_it = meshes[0].begin(2, {}, {0: {1: came}})
    wires[0].socket.sendall(header(Tag(1, 0), 4000) + b"some of it")
    wires[0].socket.close()
    assert failure(future).startswith("worker mesh: rank 2 ")
    assert is_collective_failure(RuntimeError(failure(future)))
    meshes[1].begin(2, {0: torch.ones(4)}, {})
    assert isinstance(heard(without_it), torch.Tensor)
    assert "rank 2" in failure(to_all(meshes[0], 0, 3, 3, 1)[0]), "it stays lost"


@pytest.mark.parametrize("is_early", [False, True])
def test_a_message_of_another_length_is_told_with_its_sender(opened: ExitStack, is_early: bool) -> None:
    meshes, wires = bare(opened, 2)
    wrong = header(Tag(1, 0), 3) + b"abc"
    if is_early:
        wires[0].socket.sendall(wrong + header(Tag(2, 0), 4) + b"1234")
        assert isinstance(heard(meshes[0].begin(2, {}, {0: {1: torch.zeros(1)}})), torch.Tensor)
    future = meshes[0].begin(1, {}, {0: {1: torch.zeros(1)}})
    if not is_early:
        wires[0].socket.sendall(wrong)
    assert failure(future) == ("worker mesh: rank 1 sent 3 bytes in phase 0 of exchange 1, where 4 belong")


def test_a_message_that_nobody_awaits_is_refused(opened: ExitStack) -> None:
    meshes, wires = bare(opened, 2)
    future = meshes[0].begin(1, {}, {0: {1: torch.zeros(1)}})
    wires[0].socket.sendall(header(Tag(1, 1), 4) + b"1234")
    assert "rank 1 sent a message that nobody awaits" in failure(future)


def test_a_break_ends_all_waits_and_those_to_come(opened: ExitStack) -> None:
    """One peer reads nothing, so that what is sent to it can't leave either."""
    meshes, _ = bare(opened, 2)
    waiting, _ = to_all(meshes[0], 0, 2, 1, 1 << 22)
    meshes[0].break_all("the trainer said so")
    assert failure(waiting) == "the trainer said so"
    assert failure(to_all(meshes[0], 0, 2, 2, 1)[0]) == "the trainer said so"


def test_a_silent_peer_is_given_up_after_the_limit(opened: ExitStack) -> None:
    meshes, _ = bare(opened, 2)
    meshes[0].limit_s = 0.0
    reason = failure(meshes[0].begin(1, {}, {0: {1: torch.zeros(1)}}))
    assert reason == "worker mesh: Timed out waiting for ranks [1]"
    assert is_collective_failure(RuntimeError(reason))


def test_a_break_ends_the_meeting(opened: ExitStack) -> None:
    """The second of two never comes."""
    mesh = Ranks(2).meshes[0]
    mesh.begin_meeting()
    with ThreadPoolExecutor(1) as pool:
        connecting_all = pool.submit(mesh.connect)
        mesh.break_all("a newer generation takes its place")
        with pytest.raises(RuntimeError, match="a newer generation"):
            connecting_all.result(LIMIT_S)
    with pytest.raises(RuntimeError, match="a newer generation"):
        mesh.begin_meeting()


def test_who_leaves_before_all_are_there_keeps_no_port_and_no_connection(opened: ExitStack) -> None:
    """Of three two have met, and the third never comes."""
    ranks = Ranks(3)
    for meeting in ranks.meetings[:2]:
        meeting.begin()
    entrance = ranks.meetings[0]._entrance
    assert entrance is not None
    host, _, port = entrance.address.rpartition(":")
    ranks.meshes[0].close()
    with pytest.raises(ConnectionRefusedError):
        opened.enter_context(socket.create_connection((host, int(port)), LIMIT_S))
    ranks.meshes[1].close()


def test_strangers_are_let_go_and_keep_no_member_out(opened: ExitStack) -> None:
    """One says nothing, and one takes itself for rank 1 with a proof that it made up."""
    ranks = Ranks(2)
    mesh = ranks.meshes[0]
    mesh.begin_meeting()
    entrance = ranks.meetings[0]._entrance
    assert isinstance(entrance, Entrance)
    host, _, port = entrance.address.rpartition(":")
    opened.enter_context(socket.create_connection((host, int(port)), LIMIT_S))
    liar = opened.enter_context(socket.create_connection((host, int(port)), LIMIT_S))
    liar.sendall(connecting._GREETING.pack(GENERATION, 1, b"\1" * 32))
    assert liar.recv(1) == b"", "it is let go"
    ranks.meshes[1].begin_meeting()
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(Mesh.connect, ranks.meshes))
    for one in ranks.meshes:
        opened.callback(one.close)
    begun = [to_all(one, rank, 2, 1, 10) for rank, one in enumerate(ranks.meshes)]
    assert all(isinstance(heard(done), torch.Tensor) for done, _ in begun)


def test_with_relays_messages_go_by_tls_between_them(start: Start, opened: ExitStack, tmp_path: Path) -> None:
    signer, relayed = Signer(tmp_path / "identities"), []
    for rank in range(3):
        relay = Relay("127.0.0.1", JobTls(signer.worker(f"worker-{rank}", "job-1"), "job-1"))
        opened.callback(relay.close)
        relayed.append(relay.open(GENERATION, rank, ["node-1"] * 3))
    meshes = start(3, relayed)
    check_all_came(meshes, 300_000, [[1, 2], [2, 1], [1, 2]])
    assert all(isinstance(link._connection, TlsLink) for mesh in meshes for link in mesh._links.values())


def test_what_is_urgent_overtakes_what_does_not_travel_yet(opened: ExitStack) -> None:
    """The first message is longer than the kernel takes; of those behind it the most urgent goes first."""
    listener = opened.enter_context(socket.create_server(("127.0.0.1", 0)))
    near = opened.enter_context(socket.create_connection(listener.getsockname(), LIMIT_S))
    far = opened.enter_context(listener.accept()[0])
    link = MeshLink(1, PlainConnection(near))
    length = 1 << 24
    link.push(OutgoingMessage(Tag(1, 0), memoryview(bytes(length))), 0)
    assert link.flush() == []
    for sequence, urgency in ((2, 0), (3, 5), (4, 5), (5, 9)):
        link.push(OutgoingMessage(Tag(sequence, 0), memoryview(b"x")), urgency)
    through: list[int] = []
    buffer = bytearray(1 << 20)
    while len(through) < 5:
        far.recv_into(buffer)
        through += [message.sequence for message in link.flush()]
    assert through == [1, 5, 3, 4, 2]
