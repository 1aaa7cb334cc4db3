"""Averages within groups of ranks in the middle of a round, over real sockets."""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import Any

import pytest
import torch
from mesh_ranks import Ranks
from rounds_in_memory import (
    Lines,
    Memory,
    Paced,
    Seat,
    begin,
    check_break_undoes_for_both,
    commit,
    make,
    plain_steps,
    train,
    weights,
)
from torch import Tensor

from peerloom.kit.sync_grammar import parse_sync
from peerloom.worker.mesh.mesh import Mesh
from peerloom.worker.sync import SyncTraffic
from peerloom.worker.sync.group_means import GroupMeans

Meshes = Callable[[int], list[Mesh]]


@pytest.fixture
def meshes() -> Iterator[Meshes]:
    with ExitStack() as opened:

        def connected(ranks: int) -> list[Mesh]:
            found = Ranks(ranks).connect(ranks)
            for mesh in found:
                opened.callback(mesh.close)
            return found

        yield connected


def averaged(
    meshes: list[Mesh], sync: str, counts: Sequence[int], values: list[list[Tensor]], step: int
) -> list[SyncTraffic]:
    """What the ranks' `values` become after a step of a round of four, in place; what that cost each."""
    costs = [SyncTraffic() for _ in meshes]

    def average(rank: int) -> None:
        group: Any = Seat(rank, mesh=meshes[rank], world_size=len(meshes))  # its twin in memory
        means = GroupMeans(group, costs[rank], parse_sync("sync", sync), counts)
        means.after(step, range(4), values[rank])

    with ThreadPoolExecutor(len(meshes)) as pool:
        list(pool.map(average, range(len(meshes))))
    return costs


def test_members_have_their_weighted_mean_and_others_what_they_had(meshes: Meshes) -> None:
    """Ranks 0 and 2 with 1 and 3 samples: (1 * 2 + 3 * 6) / 4. Rank 1 has none, so it is in no group."""
    values = [[torch.tensor([[2.0, 0.0], [4.0, 1.0]])], [torch.full((2, 2), 9.0)], [torch.full((2, 2), 6.0)]]
    made = averaged(meshes(3), "period=4,groups=2:2", [1, 0, 3], values, step=1)
    expected = torch.tensor([[5.0, 4.5], [5.5, 4.75]])
    assert torch.equal(values[0][0], expected)
    assert torch.equal(values[2][0], expected)
    assert torch.equal(values[1][0], torch.full((2, 2), 9.0))
    # Of four values each member sends two to the other, and gives back two sums.
    assert [one.bytes for one in made] == [16, 0, 16]


def test_each_precision_travels_by_itself_and_comes_back_as_it_was(meshes: Meshes) -> None:
    values = [
        [torch.full((3,), 1.0 + rank, dtype=kind) for kind in (torch.float64, torch.bfloat16, torch.float32)]
        for rank in range(2)
    ]
    averaged(meshes(2), "period=4,groups=2:2", [1, 1], values, step=1)
    for own in values:
        assert [(each.dtype, each.tolist()) for each in own] == [
            (torch.float64, [1.5] * 3),
            (torch.bfloat16, [1.5] * 3),
            (torch.float32, [1.5] * 3),
        ]


@pytest.mark.parametrize("step", [0, 2, 3])
def test_between_two_occasions_and_at_the_end_nothing_is_averaged(meshes: Meshes, step: int) -> None:
    values = [[torch.ones(2)], [torch.zeros(2)]]
    averaged(meshes(2), "period=4,groups=2:2", [1, 1], values, step)
    assert [own[0].tolist() for own in values] == [[1, 1], [0, 0]]


def test_averaging_after_each_batch_makes_the_steps_of_one_process(meshes: Meshes) -> None:
    """Both are one group, with equal shares, and SGD has no momentum: the steps' mean is the mean's step."""
    members = [begin(Lines(), "period=5,groups=2:1") for _ in range(2)]
    train(members, [1, 1], rounds=2, meshes=meshes(2))
    assert members[0].state.step == 6
    torch.testing.assert_close(weights(members[0]), weights(plain_steps(Lines(), 6)), rtol=1e-9, atol=1e-12)


def test_averages_bring_local_steps_closer_to_those_of_one_process(meshes: Meshes) -> None:
    """Four ranks, a whole epoch a round; pairs that meet others each time are between one and none."""
    found = {}
    for groups in ("", ",groups=2:1", ",groups=4:1"):
        members = [begin(Lines(), f"period=6,topology=direct{groups}") for _ in range(4)]
        train(members, [1] * 4, rounds=2, meshes=meshes(4))
        found[groups] = float((weights(members[0]) - weights(plain_steps(Lines(), 12))).norm())
    assert found[",groups=4:1"] < found[",groups=2:1"] < found[""]


@pytest.mark.parametrize("delay", [0, 1])
@pytest.mark.parametrize("shares", [[1, 1, 1], [3, 1, 2], [1, 0, 1]])
def test_all_have_the_same_bits_after_each_round(meshes: Meshes, shares: list[int], delay: int) -> None:
    """Three in pairs: another one is alone each time. Groups average while a round's changes travel, too."""
    members = [begin(Paced(0.9), f"period=4,groups=2:1,delay={delay}") for _ in range(3)]
    train(members, shares, rounds=4, meshes=meshes(3))
    assert members[0].state.step == 12


def test_what_breaks_undoes_averages_too(meshes: Meshes) -> None:
    """Rank 1 hears of it after the first of three batches, as rank 0 waits for it after the second."""
    members, found = [begin(Paced(0.9), "period=3,groups=2:1") for _ in range(2)], meshes(2)
    train(members, [1, 1], rounds=1, meshes=found)
    check_break_undoes_for_both(members, found, check=2)
    train(members, [1, 1], rounds=1, meshes=meshes(2))
    undisturbed = [begin(Paced(0.9), "period=3,groups=2:1") for _ in range(2)]
    train(undisturbed, [1, 1], rounds=2, meshes=meshes(2))
    assert torch.equal(weights(members[0]), weights(undisturbed[0]))


def test_who_is_alone_in_its_generation_averages_with_nobody() -> None:
    alone, plain = begin(Lines(), "period=4,groups=2:1"), begin(Lines(), "period=4")
    for training in (alone, plain):
        make(training, Memory(1), Seat(0), [1])
        commit(training)
    assert torch.equal(weights(alone), weights(plain))
