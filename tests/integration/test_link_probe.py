"""Aim: ranks measure the ways between them on the mesh's own connections, and disturb nothing.

Method: the meshes of all ranks in one process, over real sockets. Times are those of an invented clock.
"""

import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import pytest
import torch
from mesh_ranks import LIMIT_S, connected

from peerloom.kit import tournament
from peerloom.v1.trainer_pb2 import MeasuredLink
from peerloom.worker.measuring import link_probe
from peerloom.worker.measuring.link_probe import LinkProbe
from peerloom.worker.measuring.trips import LONGEST_WAIT_S
from peerloom.worker.mesh.mesh import Mesh


def probed(meshes: list[Mesh]) -> list[list[MeasuredLink]]:
    """What each rank measured; all at once, each in a thread."""
    probes = [LinkProbe(mesh, rank, len(meshes)) for rank, mesh in enumerate(meshes)]
    with ThreadPoolExecutor(len(meshes)) as pool:
        return [one.result(LIMIT_S) for one in [pool.submit(probe.run) for probe in probes]]


@pytest.mark.parametrize("ranks", range(2, 12))
def test_all_meet_all_and_two_at_a_time(ranks: int) -> None:
    table = [tournament.partners(rank, ranks) for rank in range(ranks)]
    for rank, met in enumerate(table):
        assert sorted(peer for peer in met if peer is not None) == [r for r in range(ranks) if r != rank]
        assert all(table[peer][turn] == rank for turn, peer in enumerate(met) if peer is not None)


@pytest.mark.parametrize("ranks", [2, 5])
def test_the_lower_rank_of_each_pair_measures_both_directions(opened: ExitStack, ranks: int) -> None:
    found = probed(connected(opened, ranks))
    for rank, links in enumerate(found):
        assert sorted(link.rank for link in links) == list(range(rank + 1, ranks))
        assert all(link.delay_s > 0 for link in links)
        assert all(link.sent_bits_per_s > 0 and link.received_bits_per_s > 0 for link in links)
        assert all(0 < link.message_s < LONGEST_WAIT_S for link in links)


def test_of_many_ranks_each_meets_some(opened: ExitStack, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tournament, "MOST_ROUNDS", 1)
    assert sum(len(links) for links in probed(connected(opened, 4))) == 2


def test_the_training_s_exchanges_go_on_beside_it(opened: ExitStack) -> None:
    meshes = connected(opened, 2)
    with ThreadPoolExecutor(1) as pool:
        probing = pool.submit(probed, meshes)
        for number in range(1, 30):
            came = [torch.zeros(50_000) for _ in meshes]
            ended = [threading.Event() for _ in meshes]
            for rank, mesh in enumerate(meshes):
                sent = torch.full([50_000], float(number))
                done = mesh.begin(mesh.next_sequence(), {1 - rank: sent}, {0: {1 - rank: came[rank]}})
                done.add_done_callback(lambda _, end=ended[rank]: end.set())
            assert all(end.wait(LIMIT_S) for end in ended)
            assert all(bool((one == number).all()) for one in came)
        assert len(probing.result(LIMIT_S)[0]) == 1


def test_a_delay_is_half_of_the_shortest_trip_and_a_rate_is_that_of_the_rest(opened: ExitStack) -> None:
    """By a clock that says 10 ms for short messages, and 10 ns more for each byte: 800 Mbit/s."""
    meshes = connected(opened, 2)
    now_s, begun_s, under_way = 0.0, 0.0, list[int]()

    class Timed(Mesh):
        def begin(self, sequence, outgoing, incoming, thens=(), urgency=0):  # type: ignore[no-untyped-def]
            lengths = [len(one) for one in outgoing.values()]
            lengths += [len(one) for by_rank in incoming.values() for one in by_rank.values()]
            under_way.append(sum(lengths) - 2 * link_probe.SHORT_BYTES)
            return Mesh.begin(self, sequence, outgoing, incoming, thens, urgency)

    def clock() -> float:
        """It is asked before trips that begin at once, and as each ends, the shorter one first."""
        nonlocal now_s, begun_s
        if not under_way:
            begun_s = now_s
            return now_s
        shortest = min(under_way)
        under_way.remove(shortest)
        now_s = begun_s + 0.01 + 1e-8 * shortest
        return now_s

    meshes[0].__class__ = Timed
    with ThreadPoolExecutor(2) as pool:
        asking = pool.submit(LinkProbe(meshes[0], 0, 2, clock).run)
        pool.submit(LinkProbe(meshes[1], 1, 2).run).result(LIMIT_S)
        [link] = asking.result(LIMIT_S)
    assert link.delay_s == pytest.approx(0.005)
    assert link.sent_bits_per_s == pytest.approx(8e8, rel=1e-2)
    assert link.received_bits_per_s == pytest.approx(8e8, rel=1e-2)


def test_a_break_ends_it_and_is_told(opened: ExitStack) -> None:
    """The other one never begins."""
    meshes = connected(opened, 2)
    with ThreadPoolExecutor(1) as pool:
        asking = pool.submit(LinkProbe(meshes[0], 0, 2).run)
        meshes[0].break_all("the trainer said so")
        with pytest.raises(RuntimeError, match="the trainer said so"):
            asking.result(LIMIT_S)


def test_lengths_that_nobody_may_announce_end_the_probe_alone(opened: ExitStack) -> None:
    meshes = connected(opened, 2)
    with ThreadPoolExecutor(1) as pool:
        answering = pool.submit(LinkProbe(meshes[1], 1, 2).run)
        ping = torch.full([link_probe.SHORT_BYTES], 255, dtype=torch.uint8)
        first = link_probe.FIRST_SEQUENCE + link_probe.MOST_TRIPS
        meshes[0].begin(first, {1: ping}, {})
        with pytest.raises(RuntimeError, match="bytes are announced"):
            answering.result(LIMIT_S)
    check = torch.zeros(1)
    ended = threading.Event()
    meshes[0].begin(1, {}, {0: {1: check}}).add_done_callback(lambda _: ended.set())
    meshes[1].begin(1, {0: torch.ones(1)}, {})
    assert ended.wait(LIMIT_S)
    assert check.item() == 1.0
