"""Aim: any number of ranks gets the sum by any of our own topologies, all the same bits of it.

Method: the ranks' meshes in one process, over real sockets, which count what goes from rank to rank.
"""

from collections import Counter
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from mesh_ranks import LIMIT_S, Ranks
from structlog.testing import capture_logs

from peerloom.kit.sync_grammar import parse_sync
from peerloom.worker.group.waits import TensorFuture
from peerloom.worker.mesh.mesh import Mesh
from peerloom.worker.sync import SyncTraffic
from peerloom.worker.sync.bucket_layout import Layout
from peerloom.worker.sync.residuals import Residuals
from peerloom.worker.sync.summing import Summing
from peerloom.worker.sync.topologies import summing_of

LENGTH = 12_000
Sent = Counter[tuple[int, int]]  # bytes by sender and receiver
pytestmark = pytest.mark.timeout(120)


class CountingMesh:
    """One rank's, which counts the bytes of its messages."""

    def __init__(self, mesh: Mesh, rank: int, sent: Sent) -> None:
        self.next_sequence = mesh.next_sequence
        self._mesh, self._rank, self._sent = mesh, rank, sent

    def begin(self, sequence: int, outgoing: Mapping[int, torch.Tensor], *more: Any) -> TensorFuture:
        self._count(outgoing)
        return self._mesh.begin(sequence, outgoing, *more)

    def send(self, tag: Any, outgoing: Mapping[int, torch.Tensor], urgency: int = 0) -> None:
        self._count(outgoing)
        self._mesh.send(tag, outgoing, urgency)

    def _count(self, outgoing: Mapping[int, torch.Tensor]) -> None:
        self._sent.update({(self._rank, rank): tensor.nbytes for rank, tensor in outgoing.items()})


@dataclass
class Member:
    """A rank's place, as a synchroniser sees it."""

    rank: int
    world_size: int
    mesh: CountingMesh
    node_ids: list[str]

    def result(self, future: TensorFuture) -> torch.Tensor:
        value = future.wait()
        assert isinstance(value, torch.Tensor), value
        return value


@dataclass
class Summed:
    """What came of two steps: values [step, rank, length], sums [rank, step, length], losses, and bytes."""

    values: torch.Tensor
    sums: torch.Tensor
    losses: list[list[float]]
    counted: list[int]
    sent: Sent
    left_out: torch.Tensor


def summed(text: str, ranks: int, nodes: list[str] | None = None) -> Summed:
    """Two steps of random values, in two buckets."""
    meshes, sent = Ranks(ranks).connect(ranks), Sent()
    values = torch.randn(2, ranks, LENGTH, generator=torch.Generator().manual_seed(ranks))
    names = nodes or [f"node-{rank}" for rank in range(ranks)]

    def work(rank: int) -> tuple[list[torch.Tensor], list[float], int, torch.Tensor]:
        traffic, residuals, method = SyncTraffic(), Residuals(), parse_sync("sync", text)
        member: Any = Member(rank, ranks, CountingMesh(meshes[rank], rank, sent), names)
        summing: Summing = summing_of(member, traffic, method, residuals)
        weights = [torch.empty(LENGTH // 3), torch.empty(LENGTH - LENGTH // 3)]
        came, losses = [], []
        for step in range(2):
            residuals.begin(step)
            summing.begin_loss(torch.tensor(float(rank)))
            parts = [part.clone() for part in values[step, rank].split([len(one) for one in weights])]
            for weight, part in zip(weights, parts, strict=True):
                summing.begin(part, Layout(len(part), ((weight, part.size(), (1,), 0),)))
            losses.append(summing.finish())
            residuals.commit()
            came.append(torch.cat(parts))
        kept = [residuals.kept.get(one, torch.zeros(len(one))) for one in weights]
        return came, losses, traffic.bytes, torch.cat(kept)

    try:
        with ThreadPoolExecutor(ranks) as pool:
            found = [one.result(LIMIT_S) for one in [pool.submit(work, rank) for rank in range(ranks)]]
    finally:
        for mesh in meshes:
            mesh.close()
    came, losses, counted, left_out = zip(*found, strict=True)
    sums = torch.stack([torch.stack(one) for one in came])
    return Summed(values, sums, list(losses), list(counted), sent, torch.stack(left_out))


def check_alike(found: Summed) -> None:
    ranks = len(found.counted)
    assert all(torch.equal(one, found.sums[0]) for one in found.sums), "the same bits on all"
    assert found.losses == [[ranks * (ranks - 1) / 2] * 2] * ranks
    sent = [sum(size for (sender, _), size in found.sent.items() if sender == rank) for rank in range(ranks)]
    assert found.counted == sent


@pytest.mark.parametrize("ranks", range(2, 10))
@pytest.mark.parametrize("text", ["topology=doubling", "schedule=cut:4096,topology=doubling"])
def test_exact_topologies_give_the_sum_to_any_number_of_ranks(text: str, ranks: int) -> None:
    found = summed(text, ranks)
    check_alike(found)
    torch.testing.assert_close(found.sums[0], found.values.sum(1), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("ranks", [2, 3, 6])
def test_halves_are_rounded_before_each_swap(ranks: int) -> None:
    """At most four roundings of a value by 2^-11 of it here, and sums of up to 6 values below 5."""
    found = summed("topology=doubling,codec=fp16", ranks)
    check_alike(found)
    off = (found.sums[0] - found.values.sum(1)).abs().max()
    assert 0 < off < 4 * 2**-11 * 6 * 5


def test_a_swap_has_the_whole_message_and_goes_to_one_other() -> None:
    """Of three ranks 1 is left over: it gives to 0, which swaps with 2, and gives the sum back.

    12,000 values and a loss, 4 bytes each, in two steps.
    """
    found = summed("topology=doubling", 3)
    assert found.sent == dict.fromkeys([(1, 0), (0, 2), (2, 0), (0, 1)], 2 * 4 * (LENGTH + 1))


SITES = ["a", "b", "a", "c", "b", "a", "d", "a", "c"]  # nodes by rank: sites of unequal size


@pytest.mark.parametrize("ranks", range(2, 10))
@pytest.mark.parametrize("text", ["topology=hierarchy", "schedule=cut:4096,topology=hierarchy:a+c/d"])
def test_sums_by_site_are_the_sums_of_all(text: str, ranks: int) -> None:
    found = summed(text, ranks, SITES[:ranks])
    check_alike(found)
    torch.testing.assert_close(found.sums[0], found.values.sum(1), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("codec", ["fp16", "int8", "int4", "mxfp4", "1bit", "topk:0.05"])
@pytest.mark.parametrize("ranks", [3, 5, 8])
def test_what_leaders_leave_out_between_sites_is_theirs(codec: str, ranks: int) -> None:
    """All that is missing in the sums of both steps is in the leaders' residuals, and nobody else has one."""
    found = summed(f"topology=hierarchy,codec={codec}", ranks, SITES[:ranks])
    check_alike(found)
    missing = (found.values.sum(1) - found.sums[0]).sum(0)
    assert missing.norm() > 1e-4 * found.values.norm()
    if codec != "fp16":
        torch.testing.assert_close(found.left_out.sum(0), missing, rtol=1e-4, atol=1e-4)
    leaders = {SITES.index(node) for node in SITES[:ranks]}
    with_residuals = {rank for rank, one in enumerate(found.left_out) if one.norm() > 0}
    assert with_residuals == (set() if codec == "fp16" else leaders)


def test_only_leaders_send_between_sites_and_each_value_once_a_way() -> None:
    """Ranks 0 and 1 are at one site, 2 and 3 at the other; 12,000 values of 4 bytes in two steps.

    A member sends all to its leader and gets all back; each leader sends the other half of them twice. The
    losses, 4 bytes from each to each, are all that others send to the other site.
    """
    found = summed("topology=hierarchy", 4, ["a", "a", "b", "b"])
    whole, loss = 2 * 4 * LENGTH, 2 * 4
    ways = {(one, other): loss for one in range(4) for other in range(4) if one != other}
    ways |= dict.fromkeys([(0, 1), (1, 0), (2, 3), (3, 2), (0, 2), (2, 0)], whole + loss)
    assert found.sent == ways


def test_the_direct_exchange_sends_more_between_the_sites() -> None:
    """Of four ranks two are over there: each sends a quarter to both, twice. All four: 4 D, and not 2 D."""
    between = [
        sum(size for (one, other), size in found.sent.items() if one // 2 != other // 2)
        for found in (summed(f"topology={name}", 4, ["a", "a", "b", "b"]) for name in ("direct", "hierarchy"))
    ]
    losses = 2 * 8 * 4
    assert [size - losses for size in between] == [2 * 4 * 4 * LENGTH, 2 * 2 * 4 * LENGTH]


NAMED = ["a", "b", "c", "b"]  # nodes by rank


@pytest.mark.parametrize(
    "text", ["topology=ps:{}", "schedule=cut:4096,topology=ps:{}", "topology=ps:{},codec=fp16"]
)
@pytest.mark.parametrize("named", ["b", "c+a", "a+z", "z"])
def test_servers_on_chosen_nodes_give_the_same_bits_to_all(text: str, named: str) -> None:
    found = summed(text.format(named), 4, NAMED)
    check_alike(found)
    torch.testing.assert_close(found.sums[0], found.values.sum(1), rtol=2e-2, atol=2e-2)
    if "fp16" not in text:
        torch.testing.assert_close(found.sums[0], found.values.sum(1), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("named", "event", "told"),
    [
        ("c+b+z", "servers_found", {"servers": (1, 2, 3), "absent": ["z"]}),
        ("y+z", "servers_absent", {"servers": (0, 1, 2, 3), "absent": ["y", "z"]}),
    ],
)
def test_each_rank_tells_who_the_servers_are_and_why_all(
    named: str, event: str, told: dict[str, Any]
) -> None:
    with capture_logs() as logs:
        summed(f"topology=ps:{named}", 4, NAMED)
    found = [one for one in logs if one["event"] == event]
    assert sorted(one["rank"] for one in found) == [0, 1, 2, 3]
    assert all(told.items() <= one.items() for one in found)
    assert all(("none of the nodes" in one.get("reason", "")) == (event == "servers_absent") for one in found)


def test_values_go_to_the_named_nodes_alone_and_back() -> None:
    """Node c is rank 2's: it gets 12,000 values of 4 bytes from each other in two steps, and sends as many.

    The losses, 4 bytes from each to each, are all that goes elsewhere.
    """
    found = summed("topology=ps:c", 4, NAMED)
    whole, loss = 2 * 4 * LENGTH, 2 * 4
    ways = {(one, other): loss for one in range(4) for other in range(4) if one != other}
    for rank in (0, 1, 3):
        ways[rank, 2] = ways[2, rank] = whole + loss
    assert found.sent == ways


def test_pieces_are_spread_evenly_over_the_workers_of_the_named_nodes() -> None:
    """Node b has ranks 1 and 3. Of pieces of 1,000 values, 4 in one bucket and 8 in the other, each owns 6.

    From rank 0 each gets those in both steps, and gives them back; ranks 0 and 2 exchange losses alone.
    """
    found = summed("schedule=cut:4000,topology=ps:b", 4, NAMED)
    half, loss = 2 * 4 * LENGTH // 2, 2 * 4
    assert found.sent[0, 1] == found.sent[0, 3] == found.sent[1, 0] == found.sent[3, 0] == half + loss
    assert found.sent[0, 2] == found.sent[2, 0] == loss


@pytest.mark.parametrize("codec", ["int8", "topk:0.05"])
def test_what_chosen_servers_leave_out_is_with_who_encoded_it(codec: str) -> None:
    found = summed(f"topology=ps:b,codec={codec}", 4, NAMED)
    check_alike(found)
    missing = (found.values.sum(1) - found.sums[0]).sum(0)
    assert missing.norm() > 1e-4 * found.values.norm()
    torch.testing.assert_close(found.left_out.sum(0), missing, rtol=1e-4, atol=1e-4)


def test_servers_on_all_nodes_are_those_of_no_name() -> None:
    by_name, plain = summed("topology=ps:c+b+a", 4, NAMED), summed("topology=ps", 4, NAMED)
    assert by_name.sent == plain.sent
    assert torch.equal(by_name.sums, plain.sums)
