"""Error feedback over generations, without a network: each rank is a thread, and exchanges meet in memory."""

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest
import torch

from peerloom.kit.sync_grammar import parse_sync
from peerloom.worker.sync.bucket_layout import Layout
from peerloom.worker.sync.direct import DirectExchange, Make, RowExchange
from peerloom.worker.sync.residuals import Residuals
from peerloom.worker.sync.summing import OwnerSumming

LENGTH = 5003  # no multiple of ranks, blocks or bytes
LIMIT_S = 60
LOSSY = ["codec=int8", "codec=int4", "codec=mxfp4", "codec=2bit", "codec=1bit", "codec=topk:0.05"]


class Memory:
    """Where the exchanges of some ranks meet."""

    def __init__(self, ranks: int) -> None:
        self.ranks = ranks
        self.sent: dict[tuple[int, int], torch.Tensor] = {}
        self.made: dict[tuple[int, int], torch.Tensor] = {}
        self.all_are_there = threading.Barrier(ranks, timeout=LIMIT_S)


class MemoryExchange(DirectExchange):
    """One rank's side; only what the network would do is another."""

    def __init__(self, memory: Memory, rank: int) -> None:
        self._memory, self._own_rank = memory, rank
        self._begun: list[RowExchange] = []
        self._made: dict[RowExchange, tuple[Sequence[int], Make]] = {}

    @property
    def rank(self) -> int:
        return self._own_rank

    @property
    def ranks(self) -> int:
        return self._memory.ranks

    @property
    def nodes(self) -> list[str]:
        return [f"node-{rank}" for rank in range(self.ranks)]

    def begin_by_owners(
        self, sent: torch.Tensor, owners: Sequence[int], make: Make, urgency: int = 0
    ) -> RowExchange:
        exchange = self.begin(sent)
        self._made[exchange] = owners, make
        return exchange

    def begin(self, sent: torch.Tensor) -> RowExchange:
        rows = sent if sent.dim() == 2 else sent.view(self.ranks, -1)
        self._memory.sent[len(self._begun), self.rank] = rows
        self._begun.append(RowExchange(sent, torch.empty(0), sent.device, torch.futures.Future()))
        return self._begun[-1]

    def rows(self, exchange: RowExchange) -> torch.Tensor:
        place, memory = self._begun.index(exchange), self._memory
        memory.all_are_there.wait()
        if exchange not in self._made:
            return torch.stack([memory.sent[place, rank][self.rank] for rank in range(self.ranks)])
        owners, make = self._made[exchange]
        if self.rank in owners:
            part = owners.index(self.rank)
            came = torch.stack([memory.sent[place, rank][part] for rank in range(self.ranks)])
            memory.made[place, self.rank] = make(came)
        memory.all_are_there.wait()
        return torch.stack([memory.made[place, owner] for owner in owners])


class Worker:
    """What a worker keeps over generations."""

    def __init__(self) -> None:
        self.parameter = torch.nn.Parameter(torch.zeros(LENGTH))
        self.residuals = Residuals()

    def left_out(self) -> torch.Tensor:
        return self.residuals.kept.get(self.parameter, torch.zeros(LENGTH))

    def sum_up(self, text: str, exchange: DirectExchange, step: int, gradient: torch.Tensor) -> torch.Tensor:
        """One step, up to its commit."""
        layout = Layout(LENGTH, ((self.parameter, torch.Size([LENGTH]), (1,), 0),))
        summing = OwnerSumming(exchange, parse_sync("sync", text), self.residuals)
        self.residuals.begin(step)
        bucket = gradient.clone()
        summing.begin_loss(torch.ones(()))
        summing.begin(bucket, layout)
        assert summing.finish() == exchange.ranks
        return bucket


def make_step(
    workers: list[Worker], text: str, step: int, commits: Callable[[Worker], bool] = lambda worker: True
) -> tuple[torch.Tensor, torch.Tensor]:
    """The sum of the gradients, and what came out of them, which is the same on all."""
    chance = torch.Generator().manual_seed(step)
    gradients = [torch.randn(LENGTH, generator=chance) for _ in workers]
    memory = Memory(len(workers))
    with ThreadPoolExecutor(len(workers)) as pool:
        sums = [
            pool.submit(partial(worker.sum_up, text, MemoryExchange(memory, rank), step, gradients[rank]))
            for rank, worker in enumerate(workers)
        ]
        came = [one.result(LIMIT_S) for one in sums]
    assert all(torch.equal(one, came[0]) for one in came)
    for worker in workers:
        if commits(worker):
            worker.residuals.commit()
    return torch.stack(gradients).sum(0), came[0]


def residual_of(workers: list[Worker]) -> torch.Tensor:
    return torch.stack([worker.left_out() for worker in workers]).sum(0)


def check_nothing_is_missing(asked: torch.Tensor, came: torch.Tensor, left_out: torch.Tensor) -> None:
    torch.testing.assert_close(came + left_out, asked, rtol=1e-4, atol=2e-4)


@pytest.mark.parametrize("text", LOSSY)
@pytest.mark.parametrize("ranks", [2, 3])
def test_the_sums_of_all_steps_lack_the_last_residuals_and_nothing_else(text: str, ranks: int) -> None:
    workers = [Worker() for _ in range(ranks)]
    steps = [make_step(workers, text, step) for step in range(6)]
    asked, came = (torch.stack([step[side] for step in steps]).sum(0) for side in (0, 1))
    left_out = residual_of(workers)
    assert float((came - asked).abs().max()) > 1e-2, "a codec that loses nothing shows nothing"
    check_nothing_is_missing(asked, came, left_out)


def test_an_owner_adds_up_its_own_values_as_they_are() -> None:
    """Of 7 and 0.4, encoded by themselves, 0.4 would be nothing. With -6 and 0 of the other it is 1 and 0.4.

    A unit of that is 1/7, so 0.4 comes out as 3/7, and the owner keeps what is left.
    """
    both, memory = [Worker(), Worker()], Memory(2)
    gradients = [torch.zeros(LENGTH), torch.zeros(LENGTH)]
    gradients[0][:2], gradients[1][0] = torch.tensor([7.0, 0.4]), -6.0
    with ThreadPoolExecutor(2) as pool:
        sums = [
            pool.submit(worker.sum_up, "codec=int4", MemoryExchange(memory, rank), 0, gradients[rank])
            for rank, worker in enumerate(both)
        ]
        came = sums[0].result(LIMIT_S)
    both[0].residuals.commit()
    torch.testing.assert_close(came[:2], torch.tensor([1.0, 3 / 7]))
    torch.testing.assert_close(both[0].left_out()[:2], torch.tensor([0.0, 0.4 - 3 / 7]))


@pytest.mark.parametrize("text", ["codec=none,topology=direct", "codec=fp16,topology=direct"])
def test_without_error_feedback_nothing_is_kept(text: str) -> None:
    workers = [Worker() for _ in range(3)]
    asked, came = make_step(workers, text, 0)
    torch.testing.assert_close(came, asked, rtol=2e-3 if "fp16" in text else 1e-6, atol=4e-3)
    assert all(worker.residuals.kept == {} for worker in workers)


def test_survivors_keep_theirs_a_newcomer_begins_with_none_and_a_leavers_is_lost() -> None:
    """Three make two steps; one leaves and one comes: other parts, other owners."""
    stays, leaves, also_stays = workers = [Worker() for _ in range(3)]
    first = [make_step(workers, "codec=int4", step) for step in range(2)]
    lost = leaves.left_out().clone()
    comes = Worker()
    now = [also_stays, stays, comes, Worker()]
    second = [make_step(now, "codec=int4", step) for step in range(2, 5)]
    asked, came = (torch.stack([step[side] for step in first + second]).sum(0) for side in (0, 1))
    check_nothing_is_missing(asked, came, residual_of(now) + lost)


def test_where_messages_become_too_short_to_encode_the_residuals_are_told_as_they_are() -> None:
    """Of 5,003 values each of 12 ranks owns 417, of which int8 would save 1,148 bytes."""
    workers = [Worker() for _ in range(12)]
    first = make_step(workers[:2], "codec=int8", 0)
    assert float(residual_of(workers).abs().max()) > 1e-3
    for worker in workers[2:]:
        worker.residuals.begin(0)
        worker.residuals.commit()
    second = make_step(workers, "codec=int8", 1)
    assert float(residual_of(workers).abs().max()) < 1e-5
    torch.testing.assert_close(first[1] + second[1], first[0] + second[0], rtol=1e-4, atol=2e-4)


def test_a_step_that_broke_is_made_again_with_the_same_residuals() -> None:
    workers = [Worker() for _ in range(2)]
    make_step(workers, "codec=1bit", 0)
    before = residual_of(workers)
    _, broken = make_step(workers, "codec=1bit", 1, commits=lambda worker: False)
    assert torch.equal(residual_of(workers), before)
    _, again = make_step(workers, "codec=1bit", 1)
    assert torch.equal(again, broken)


def test_who_gets_the_others_state_begins_with_zeros() -> None:
    """One lacks the second step, and takes the others' state of after it: its residual was for that step."""
    workers = [Worker() for _ in range(2)]
    make_step(workers, "codec=int8", 0)
    make_step(workers, "codec=int8", 1, commits=lambda worker: worker is workers[0])
    for worker in workers:
        worker.residuals.begin(2)
    assert float(workers[0].left_out().abs().max()) > 0
    assert workers[1].residuals.kept == {}


def test_a_gradient_that_is_not_finite_reaches_all_and_leaves_no_residual_for_ever() -> None:
    worker, other = workers = [Worker(), Worker()]
    memory, gradient = Memory(2), torch.ones(LENGTH)
    gradient[7] = torch.nan
    with ThreadPoolExecutor(2) as pool:
        sums = [
            pool.submit(partial(one.sum_up, "codec=int8", MemoryExchange(memory, rank), 0, gradient))
            for rank, one in enumerate(workers)
        ]
        assert all(bool(one.result(LIMIT_S)[7].isnan()) for one in sums)
    for one in (worker, other):
        one.residuals.commit()
        assert bool(one.left_out().isfinite().all())
    _, came = make_step(workers, "codec=int8", 1)
    assert bool(came.isfinite().all())


def test_a_step_made_alone_leaves_the_residual_for_the_next_group() -> None:
    workers = [Worker() for _ in range(2)]
    make_step(workers, "codec=int8", 0)
    before = workers[0].left_out().clone()
    workers[0].residuals.begin(1)
    workers[0].residuals.commit()
    workers[0].residuals.begin(2)
    assert torch.equal(workers[0].left_out(), before)
