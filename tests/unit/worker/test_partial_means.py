"""Averages of parts of the parameters in the middle of a round, over real sockets."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import Any

import pytest
import torch
from mesh_ranks import connected
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

from peerloom.kit.averaged_parts import CHUNK_VALUES
from peerloom.kit.sync_grammar import parse_sync
from peerloom.worker.mesh.mesh import Mesh
from peerloom.worker.sync import SyncTraffic
from peerloom.worker.sync.bucket_layout import Gradients
from peerloom.worker.sync.common_values import CommonValues
from peerloom.worker.sync.partial_means import PartialMeans


class Member:
    """A rank of a group in a round of four batches, whose parameters all begin as zeros."""

    def __init__(
        self,
        rank: int,
        mesh: Mesh,
        sync: str,
        counts: Sequence[int],
        values: list[Tensor],
        owed: Gradients | None = None,
    ) -> None:
        self.values = values
        self.common = CommonValues(values, owed or {})
        self.traffic = SyncTraffic()
        group: Any = Seat(rank, mesh=mesh, world_size=len(counts))  # its twin in memory
        self._means = PartialMeans(group, self.traffic, parse_sync("sync", sync), counts, self.common)

    def after(self, step: int) -> None:
        self._means.after(step, range(4))


def members(
    opened: ExitStack, sync: str, counts: Sequence[int], size: int, dtype: torch.dtype = torch.float32
) -> list[Member]:
    meshes = connected(opened, len(counts))
    return [
        Member(rank, mesh, sync, counts, [torch.zeros(size, dtype=dtype)]) for rank, mesh in enumerate(meshes)
    ]


def average(ranks: Sequence[Member], step: int) -> None:
    with ThreadPoolExecutor(len(ranks)) as pool:
        list(pool.map(lambda member: member.after(step), ranks))


def test_a_part_becomes_the_weighted_mean_and_the_rest_stays() -> None:
    """Of 4 and 8 with 1 and 3 samples the first of two chunks becomes 7, and the second a step later."""
    with ExitStack() as opened:
        both = members(opened, "period=4,partial=2:1", [1, 3], 2 * CHUNK_VALUES)
        for member, value in zip(both, (4.0, 8.0), strict=True):
            member.values[0].fill_(value)
        average(both, step=0)
        chunks = [member.values[0].view(2, -1) for member in both]
        assert [[float(chunk.unique()) for chunk in own] for own in chunks] == [[7, 4], [7, 8]]
        # Half of a chunk goes to its owner, and the other half's mean to the other rank.
        assert [member.traffic.bytes for member in both] == [4 * CHUNK_VALUES] * 2
        average(both, step=1)
        assert [[float(chunk.unique()) for chunk in own] for own in chunks] == [[7, 7]] * 2


@pytest.mark.parametrize("late", [1, 2])
def test_a_mean_that_comes_later_keeps_what_was_changed_meanwhile(late: int) -> None:
    """Of 4 and 8 the mean is 6; each batch that is computed until then adds 1 to the one and 2 to the other.

    The round's end comes with the fourth batch, whatever travels then.
    """
    with ExitStack() as opened:
        both = members(opened, f"period=4,partial=2:2:{late}", [1, 1], CHUNK_VALUES)
        for member, value in zip(both, (4.0, 8.0), strict=True):
            member.values[0].fill_(value)
        average(both, step=1)
        assert [float(member.values[0].unique()) for member in both] == [4, 8]
        for step in range(2, 2 + late):
            for member, change in zip(both, (1.0, 2.0), strict=True):
                member.values[0] += change
            average(both, step)
        assert [float(member.values[0].unique()) for member in both] == [6 + late, 6 + 2 * late]


def test_what_travels_at_the_end_of_a_round_is_taken_up_with_it() -> None:
    """It began after the third of four batches, and would come after the fifth."""
    with ExitStack() as opened:
        both = members(opened, "period=5,partial=2:3:2", [1, 1], CHUNK_VALUES)
        both[1].values[0].fill_(8.0)
        average(both, step=2)
        average(both, step=3)
        assert [float(member.values[0].unique()) for member in both] == [4, 4]


def test_what_was_left_out_before_the_round_travels_with_the_first_part() -> None:
    """Each owes 3 of each value, and nobody has changed any. The end adds that by itself: it is taken off."""
    with ExitStack() as opened:
        both = []
        for rank, mesh in enumerate(connected(opened, 2)):
            values = [torch.zeros(2 * CHUNK_VALUES)]
            owed = {values[0]: torch.full((2 * CHUNK_VALUES,), 3.0)}
            both.append(Member(rank, mesh, "period=4,partial=2:1", [1, 1], values, owed))
        average(both, step=0)
        chunks = [member.values[0].view(2, -1) for member in both]
        assert [[float(chunk.unique()) for chunk in own] for own in chunks] == [[-6, 0]] * 2
        [change], _ = (member.common.changes(0.5) for member in both)
        assert [float(chunk.unique()) for chunk in change.view(2, -1)] == [-3, 0]


@pytest.mark.parametrize("step", [0, 2, 3])
def test_between_two_occasions_and_at_the_end_nothing_is_averaged(step: int) -> None:
    with ExitStack() as opened:
        both = members(opened, "period=4,partial=2:2", [1, 1], CHUNK_VALUES)
        both[0].values[0].fill_(1.0)
        average(both, step)
        assert [float(member.values[0].unique()) for member in both] == [1, 0]


def test_each_precision_is_averaged_as_what_it_is() -> None:
    with ExitStack() as opened:
        both = members(opened, "period=4,partial=2:1", [1, 1], 5, torch.bfloat16)
        both[1].values[0].fill_(3.0)
        average(both, step=0)
        assert [(each.dtype, each.tolist()) for member in both for each in member.values] == [
            (torch.bfloat16, [1.5] * 5)
        ] * 2


@pytest.mark.parametrize("codec", ["none", "int8", "mxfp4", "2bit", "1bit", "topk:0.1"])
def test_what_all_know_and_what_all_left_out_is_what_they_changed(codec: str) -> None:
    """A part travels, and all at the end: what is left out of the first sums travels then, too."""
    generator = torch.Generator().manual_seed(7)
    size = 40 * CHUNK_VALUES
    with ExitStack() as opened:
        three = members(opened, f"period=4,partial=2:1,codec={codec}", [1, 2, 1], size, torch.float64)
        for member in three:
            member.values[0].copy_(torch.randn(size, generator=generator, dtype=torch.float64))
        mean = sum(weight * member.values[0] for weight, member in zip((0.25, 0.5, 0.25), three, strict=True))
        average(three, step=0)
        first = torch.arange(size) // CHUNK_VALUES % 2 == 0
        known = three[0].values[0][first]
        assert all(torch.equal(member.values[0][first], known) for member in three)
        changes = [
            member.common.changes(weight)[0] for weight, member in zip((0.25, 0.5, 0.25), three, strict=True)
        ]
        for member, change in zip(three, changes, strict=True):
            assert not member.values[0].any(), "all are where they began"
            member.values[0].grad = torch.zeros_like(change)
            member.common.add_moved()
        moved = three[0].values[0].grad
        assert moved is not None
        assert all(torch.equal(member.values[0].grad, moved) for member in three)
        torch.testing.assert_close(-moved - sum(changes), mean, rtol=1e-5, atol=1e-5)
        assert bool((known != mean[first]).any()) == (codec != "none")


@pytest.mark.parametrize("more", ["", ",codec=2bit", ":1,codec=2bit"])
@pytest.mark.parametrize("shares", [[1, 1, 1], [3, 1, 2], [1, 0, 1]])
def test_all_have_the_same_bits_after_each_round(shares: list[int], more: str) -> None:
    with ExitStack() as opened:
        three = [begin(Paced(0.9), f"period=4,partial=2:1{more}") for _ in range(3)]
        train(three, shares, rounds=4, meshes=connected(opened, 3))
        assert three[0].state.step == 12


def test_averages_of_parts_bring_local_steps_closer_to_those_of_one_process() -> None:
    """A whole epoch a round; the model is one chunk, which is averaged each third or each second time."""
    found = {}
    for partial in ("", ",partial=3:1", ",partial=2:1"):
        both = [begin(Lines(), f"period=6,topology=direct{partial}") for _ in range(2)]
        with ExitStack() as opened:
            train(both, [1, 1], rounds=2, meshes=connected(opened, 2))
        found[partial] = float((weights(both[0]) - weights(plain_steps(Lines(), 12))).norm())
    assert found[",partial=2:1"] < found[",partial=3:1"] < found[""]


@pytest.mark.parametrize("late", ["", ":1"])
def test_what_breaks_undoes_averages_too(late: str) -> None:
    """Both have averaged after the first batch; rank 1 hears of it before the third, rank 0 after that."""
    sync = f"period=4,partial=2:1{late},codec=2bit"
    both, undisturbed = ([begin(Paced(0.9), sync) for _ in range(2)] for _ in range(2))
    with ExitStack() as opened:
        check_break_undoes_for_both(both, connected(opened, 2), check=3)
    for two in (both, undisturbed):
        with ExitStack() as opened:
            train(two, [1, 1], rounds=1, meshes=connected(opened, 2))
    assert torch.equal(weights(both[0]), weights(undisturbed[0]))


def test_who_is_alone_in_its_generation_averages_with_nobody() -> None:
    alone, plain = begin(Lines(), "period=4,partial=2:1"), begin(Lines(), "period=4")
    for training in (alone, plain):
        make(training, Memory(1), Seat(0), [1])
        commit(training)
    assert torch.equal(weights(alone), weights(plain))
