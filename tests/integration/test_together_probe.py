"""Aim: each rank measures what its link brings while all ask all, and a rank alone with another asks nothing.

Method: the meshes of all ranks in one process, over real sockets. Times are those of an invented clock.
"""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import pytest
from mesh_ranks import LIMIT_S, connected

from peerloom.v1.trainer_pb2 import MeasuredLink
from peerloom.worker.measuring.together_probe import TogetherProbe
from peerloom.worker.mesh.mesh import Mesh


def known_to(rank: int, ranks: int) -> list[MeasuredLink]:
    """As after the probes of pairs: the lower of two knows their way. 8 Mbit/s, 50 ms."""
    way = {"sent_bits_per_s": 8e6, "received_bits_per_s": 2e6, "delay_s": 0.05}
    return [MeasuredLink(rank=other, **way) for other in range(rank + 1, ranks)]


def turns(*took_s: float) -> Callable[[], float]:
    """A clock that is looked at before and after each turn, which take so long."""
    times = iter([time_s for begun_s, one_s in enumerate(took_s) for time_s in (begun_s, begun_s + one_s)])
    return lambda: next(times)


def probed(meshes: Sequence[Mesh], clock: Callable[[], Callable[[], float]]) -> list[float]:
    """What each rank measured; all at once, each in a thread, with a clock of its own."""
    ranks = len(meshes)
    probes = [
        TogetherProbe(mesh, rank, ranks, known_to(rank, ranks), clock()) for rank, mesh in enumerate(meshes)
    ]
    with ThreadPoolExecutor(ranks) as pool:
        return [one.result(LIMIT_S) for one in [pool.submit(probe.run) for probe in probes]]


def test_the_best_of_three_turns_counts_and_the_way_there_and_back_does_not(opened: ExitStack) -> None:
    """Two answers of 50 kB each, a round trip's worth of 8 Mbit/s, in 300 ms, of which 100 are the trip."""
    found = probed(connected(opened, 3), lambda: turns(0.5, 0.3, 0.4))
    assert found == pytest.approx([4e6] * 3), "the last rank learns of its ways from the others"


def test_answers_are_so_long_that_all_of_them_take_a_round_trip(opened: ExitStack) -> None:
    """Of five ranks four answer, with 25 kB each."""
    assert probed(connected(opened, 5), lambda: turns(0.3, 0.3, 0.3)) == pytest.approx([4e6] * 5)


def test_two_have_one_connection_and_ask_nothing(opened: ExitStack) -> None:
    assert probed(connected(opened, 2), lambda: turns()) == [0.0, 0.0]


def test_a_break_ends_it_and_is_told(opened: ExitStack) -> None:
    """The others never begin."""
    meshes = connected(opened, 3)
    with ThreadPoolExecutor(1) as pool:
        asking = pool.submit(TogetherProbe(meshes[0], 0, 3, known_to(0, 3)).run)
        meshes[0].break_all("the trainer said so")
        with pytest.raises(RuntimeError, match="the trainer said so"):
            asking.result(LIMIT_S)
