"""Aim: ranks that share links agree on what these carry, and have their connections share them evenly.

Method: the meshes of all ranks in one process, over real sockets, and clocks that the test sets. What each
mesh is told is noted, and a socket is asked what it was told. Loopback is fast: here no link is too fast to
be paced.
"""

import socket
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from types import SimpleNamespace
from typing import cast

import pytest
from mesh_ranks import LIMIT_S, connected

from peerloom.kit.sync_grammar import parse_sync
from peerloom.worker.group.process_group import Group
from peerloom.worker.measuring.link_pacing import FIRST_LOOK, LEAST_LEFT_S, LinkPacing
from peerloom.worker.measuring.node_measures import LASTING_S, NodeMeasures
from peerloom.worker.mesh import mesh as mesh_module
from peerloom.worker.mesh import mesh_link, pacing
from peerloom.worker.mesh.mesh import Mesh
from peerloom.worker.mesh.mesh_link import UNPACED, MeshLink, PlainConnection
from peerloom.worker.mesh.pacing import LinkRates
from peerloom.worker.training import Training

NODES = ["ada", "bob", "cid"]
STEP_S = 1.0
LATER_S = 0.9  # steps after the first look: by the clock the second one comes sooner than was meant
UNTIL_NEXT = int(LASTING_S / STEP_S)
LONG_JOB = UNTIL_NEXT + 200  # steps: some are left after the second look
SIZE = 4  # bytes of the kernel's number


@pytest.fixture(autouse=True)
def _any_link(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever TCP this machine has and however fast its loopback is."""
    monkeypatch.setattr(pacing, "FASTEST_PACED_BITS_PER_S", float("inf"))
    monkeypatch.setattr(
        mesh_link, "quick", lambda one: one.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, b"reno")
    )


class Paced:
    """Three ranks of a job: what each mesh was `told`, in turn, and what each worker has `known`."""

    def __init__(self, opened: ExitStack, monkeypatch: pytest.MonkeyPatch, known: Sequence[NodeMeasures]):
        self.told: dict[int, list[dict[int, int]]] = {rank: [] for rank in range(3)}
        self.known = known
        self.meshes = connected(opened, 3)
        pace = Mesh.pace

        def note(mesh: Mesh, bytes_per_s: dict[int, int]) -> None:
            self.told[self.meshes.index(mesh)].append(dict(bytes_per_s))
            pace(mesh, bytes_per_s)

        monkeypatch.setattr(mesh_module.Mesh, "pace", note)

    def run(
        self, steps: int, of: int = LONG_JOB, method: str = "topology=direct", must_measure: bool = False
    ) -> list[LinkPacing]:
        """Makes so many steps, in which computing takes half of the time, of a job of `of` steps."""
        with ThreadPoolExecutor(3) as pool:
            ranks = [pool.submit(self._run, rank, steps, of, method, must_measure) for rank in range(3)]
            return [rank.result(LIMIT_S) for rank in ranks]

    def _run(self, rank: int, steps: int, of: int, method: str, must_measure: bool) -> LinkPacing:
        time_s = [0.0]
        training = SimpleNamespace(
            sync=parse_sync("sync", method),
            robust="off",
            figures=SimpleNamespace(training_s=0.0, compute_s=0.0),
            schedule=SimpleNamespace(total_steps=of),
            state=SimpleNamespace(step=0),
        )
        group = SimpleNamespace(mesh=self.meshes[rank], rank=rank, world_size=3, node_ids=NODES, generation=1)
        paced = LinkPacing(
            cast(Training, training), cast(Group, group), self.known[rank], must_measure, lambda: time_s[0]
        )
        for step in range(steps):
            step_s = STEP_S if step < FIRST_LOOK else LATER_S
            time_s[0] += step_s
            training.figures.training_s += step_s
            training.figures.compute_s += STEP_S / 2
            training.state.step += 1
            paced.after_step(1)
        return paced

    def paces_of(self, rank: int) -> dict[int, int]:
        """What a rank keeps to, by what all have agreed on."""
        links = self.known[0].rates(NODES, 0.0)
        found = pacing.paces(parse_sync("sync", "topology=direct"), NODES, links)
        return {taker: pace for (sender, taker), pace in found.items() if sender == rank}


def new(ranks: int = 3) -> list[NodeMeasures]:
    return [NodeMeasures() for _ in range(ranks)]


def test_links_that_nobody_knows_are_measured_and_shared(
    opened: ExitStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    ranks = Paced(opened, monkeypatch, new())
    ranks.run(FIRST_LOOK)
    links = ranks.known[0].rates(NODES, 0.0)
    assert all(link.is_known for link in links)
    assert [one.rates(NODES, 0.0) for one in ranks.known[1:]] == [links, links], "all have agreed"
    for rank, told in ranks.told.items():
        assert told[0] == {}, "nothing holds the measurement up"
        assert len(told) == 3, "and a second one is made of even parts"
        assert told[-1] == ranks.paces_of(rank)
        assert sorted(told[-1]) == sorted({0, 1, 2} - {rank})


def test_a_short_rest_is_not_worth_a_pause(opened: ExitStack, monkeypatch: pytest.MonkeyPatch) -> None:
    """Half a second of each step is spent on waiting; the last look is at what two steps have left."""
    ranks = Paced(opened, monkeypatch, new())
    ranks.run(FIRST_LOOK, of=FIRST_LOOK + int(LEAST_LEFT_S / (STEP_S / 2)) - 1)
    assert ranks.told == {0: [], 1: [], 2: []}
    assert not any(link.is_known for one in ranks.known for link in one.rates(NODES, 0.0))


def test_a_newcomer_hears_from_the_others_what_links_carry(
    opened: ExitStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    links = [LinkRates(8e6, 8e6), LinkRates(16e6, 16e6), LinkRates(80e6, 80e6)]
    known = new()
    for one in known[:2]:
        one.note_rates(NODES, links, 0.0)
    ranks = Paced(opened, monkeypatch, known)
    ended = ranks.run(FIRST_LOOK)
    assert [one.links for one in ended] == [None] * 3, "nobody measures"
    assert known[2].rates(NODES, 0.0) == links
    assert ranks.told[2] == [{0: 525_000, 1: 1_050_000}], "a half of what each brings, and a twentieth more"


def test_links_are_measured_again_after_minutes(opened: ExitStack, monkeypatch: pytest.MonkeyPatch) -> None:
    """Others may have used them meanwhile. Nearly at the end what was known goes on to count."""
    known = new()
    for one in known:
        one.note_rates(NODES, [LinkRates(8e6, 8e6)] * 3, 0.0)
    ranks = Paced(opened, monkeypatch, known)
    ended = ranks.run(FIRST_LOOK + UNTIL_NEXT)
    assert all(one.links is not None for one in ended)
    before, unpaced, *_, last = ranks.told[0]
    assert before == {1: 525_000, 2: 525_000}
    assert unpaced == {}, "so that a link shows what it carries by now"
    assert last == ranks.paces_of(0) != before


def test_nearly_at_the_end_links_are_not_measured_again(
    opened: ExitStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = new()
    for one in known:
        one.note_rates(NODES, [LinkRates(8e6, 8e6)] * 3, 0.0)
    ranks = Paced(opened, monkeypatch, known)
    ranks.run(FIRST_LOOK + UNTIL_NEXT, of=FIRST_LOOK + UNTIL_NEXT + 1)
    assert ranks.told[0] == [{1: 525_000, 2: 525_000}]


def test_ways_are_measured_for_the_trainer_and_no_link_of_a_ring_is_paced(
    opened: ExitStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    ranks = Paced(opened, monkeypatch, new())
    ended = ranks.run(FIRST_LOOK, method="wfbp-a2a", must_measure=True)
    assert [[link.rank for link in one.links or ()] for one in ended] == [[1, 2], [2], []]
    assert ranks.told == {0: [], 1: [], 2: []}


def test_ways_that_the_trainer_needs_are_measured_once(
    opened: ExitStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where a pause for links alone wouldn't pay; and where it does they are what links are known by."""
    ranks = Paced(opened, monkeypatch, new())
    ended = ranks.run(FIRST_LOOK, of=FIRST_LOOK + 1, must_measure=True)
    assert [[link.rank for link in one.links or ()] for one in ended] == [[1, 2], [2], []]
    assert ranks.told == {0: [], 1: [], 2: []}


def test_a_lost_peer_ends_a_look_and_not_the_training(
    opened: ExitStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The failed step that follows is the training's to tell of."""
    ranks = Paced(opened, monkeypatch, new())
    ranks.meshes[2].break_all("its worker was killed")
    ended = ranks.run(FIRST_LOOK)
    assert [one.links for one in ended] == [None] * 3
    assert ranks.told == {0: [], 1: [], 2: []}


@pytest.fixture
def connection() -> Iterator[socket.socket]:
    """Of TCP."""
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        socket.create_connection(server.getsockname()) as one,
    ):
        yield one


def told_to(connection: socket.socket) -> int:
    """The most bytes/s that the kernel sends of it."""
    number = connection.getsockopt(socket.SOL_SOCKET, mesh_link._MAX_PACING_RATE, SIZE)
    return int.from_bytes(number, "little")


def test_the_kernel_keeps_to_a_pace_until_it_is_taken_back(connection: socket.socket) -> None:
    link = MeshLink(1, PlainConnection(connection))
    assert link.bears_pacing
    link.pace(2_000_000)
    assert told_to(connection) == 2_000_000
    link.pace(UNPACED)
    assert told_to(connection) == UNPACED
    link.free()
    link.pace(2_000_000)  # an end that comes between changes nothing


def test_bbr_finds_its_own_pace(connection: socket.socket, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether this kernel has it or not."""
    link = MeshLink(1, PlainConnection(connection))
    told = SimpleNamespace(
        getsockopt=lambda *_: b"bbr\0\0\0\0\0", setsockopt=lambda *_: pytest.fail("it was paced")
    )
    monkeypatch.setattr(link, "_connection", SimpleNamespace(socket=told))
    assert not link.bears_pacing
    link.pace(2_000_000)
