"""Federated rounds without a network: each worker is a thread, and what they tell meets in memory."""

import threading
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest
import torch
from means_task import Means
from rounds_in_memory import Memory, MemorySync
from torch import Tensor, nn

from peerloom.errors import FailedPreconditionError, InvalidArgumentError
from peerloom.kit.federated_rounds import DIRICHLET, SIZE, FederatedRounds
from peerloom.v1.trainer_pb2 import JobSpec
from peerloom.worker.federated.client_rows import ClientRow
from peerloom.worker.federated.drawing import drawn, may_end, numbers_for, weights_of
from peerloom.worker.federated.federated_round import RoundMade, make_federated_round
from peerloom.worker.federated.federated_training import FederatedTraining
from peerloom.worker.federated.shards import split_of
from peerloom.worker.group.waits import GenerationBrokenError
from peerloom.worker.sharded import Sharded
from peerloom.worker.task import Split, Task

LIMIT_S = 60
pytestmark = pytest.mark.timeout(2 * LIMIT_S)


class Table:
    """Where rows meet: the exchange number n is there once all have begun it."""

    def __init__(self, ranks: int) -> None:
        self.ranks = ranks
        self.changed = threading.Condition()
        self.rows: list[dict[int, ClientRow]] = []

    def begin(self, number: int, rank: int, row: ClientRow) -> None:
        with self.changed:
            while len(self.rows) <= number:
                self.rows.append({})
            self.rows[number][rank] = row
            self.changed.notify_all()

    def is_there(self, number: int) -> bool:
        with self.changed:
            return len(self.rows[number]) == self.ranks

    def wait(self, number: int) -> list[ClientRow]:
        with self.changed:
            assert self.changed.wait_for(lambda: len(self.rows[number]) == self.ranks, LIMIT_S)
            return [row for _, row in sorted(self.rows[number].items())]


class TableRows:
    """One worker's exchange; who is `slow` sees that it is there as soon as it is, who isn't at its end."""

    def __init__(self, table: Table, number: int, is_slow: bool) -> None:
        self._table, self._number, self._is_slow = table, number, is_slow

    def are_there(self) -> bool:
        if self._is_slow:  # one batch at most between two exchanges
            self._table.wait(self._number)
            return True
        return False

    def result(self) -> list[ClientRow]:
        return self._table.wait(self._number)


class Place:
    """A worker's place in a group."""

    def __init__(self, rank: int, ranks: int, generation: int = 1) -> None:
        self.rank, self.generation = rank, generation
        self.node_ids = [f"node-{number}" for number in range(ranks)]
        self.beliefs: list[float] = []
        self.is_broken: Callable[[], bool] = lambda: False
        self.leaves = False

    def leaves_after(self, step: int) -> bool:
        return self.leaves

    def check(self, step: int | None = None) -> None:
        if self.is_broken():
            raise GenerationBrokenError("a worker is lost")


def begin(sync: str, task: Task | None = None, rate: float = 0.5, batch: int = 9) -> FederatedTraining:
    spec = JobSpec(epochs=3, batch_size=batch, learning_rate=rate, seed=1, sync=f"federated,{sync}")
    return FederatedTraining(task or Means(), spec, torch.device("cpu"))


def make(
    workers: list[FederatedTraining], places: list[Place], slow: tuple[int, ...] = ()
) -> list[RoundMade]:
    """A round of all of them, up to the outer step. Raises what the first of them does."""
    table, memory = Table(len(workers)), Memory(len(workers))

    def work(rank: int) -> RoundMade:
        training, numbers = workers[rank], iter(range(10_000))

        def rows(row: ClientRow) -> TableRows:
            number = next(numbers)
            table.begin(number, rank, row)
            return TableRows(table, number, rank in slow)

        sync = MemorySync(training.exchanged, memory, rank)
        step = training.state.step
        return make_federated_round(
            training,
            training.federation,
            places[rank],  # type: ignore[arg-type]  # its twin in memory
            sync,
            step,
            rows,
        )

    with ThreadPoolExecutor(len(workers)) as pool:
        made = [pool.submit(work, rank) for rank in range(len(workers))]
        return [one.result(LIMIT_S) for one in made]


def commit(workers: list[FederatedTraining]) -> float:
    for training in workers:
        training.state.updater.step()
        training.state.step += 1
    weights = {weight_of(training) for training in workers}
    assert len(weights) == 1, "all have the same bits"
    return weights.pop()


def weight_of(training: FederatedTraining) -> float:
    return next(iter(training.state.model.parameters())).item()


def data_of(training: FederatedTraining) -> list[list[float]]:
    shards = split_of(training.task, training.train, training.federation.rounds, training.seed)
    return [[float(training.train[int(i)][1]) for i in shard] for shard in shards]


def places(count: int, generation: int = 1) -> list[Place]:
    return [Place(rank, count, generation) for rank in range(count)]


def test_fedavg_is_the_mean_of_what_clients_come_to() -> None:
    """By hand: a client's passes over its whole shard go from w to w + (mean - w) / 2 each."""
    workers = [begin("shards=3,epochs=2,split=size:1.0") for _ in range(3)]
    data = data_of(workers[0])
    assert sorted(x for shard in data for x in shard) == [float(x) for x in range(1, 10)]
    value = 0.0
    for round_number in range(2):
        ends = [value + (sum(shard) / len(shard) - value) * 0.75 for shard in data]
        value = sum(end * len(shard) for end, shard in zip(ends, data, strict=True)) / 9
        made = make(workers, places(3))
        assert commit(workers) == pytest.approx(value)
        assert made[0].counts == [2 * len(shard) for shard in data]
        assert made[0].first_sample == 18 * round_number
        assert [push.verdict for push in made[0].told.pushes] == ["accepted"] * 3
        assert sum(client.samples for client in made[0].told.clients) == 18 * (round_number + 1)
        assert made[0].told == made[1].told == made[2].told


def test_fedprox_holds_a_client_back() -> None:
    """By hand: its second step has a gradient of w - mean + mu * w, with w half the mean after the first."""
    workers = [begin("shards=1,epochs=2,algorithm=fedprox,mu=0.5")]
    make(workers, places(1))
    first = 2.5
    assert commit(workers) == pytest.approx(first - 0.5 * (first - 5 + 0.5 * first))


def test_fedadam_moves_by_its_own_rate() -> None:
    """By hand: Adam's first step is rate * m / (|m| + eps), for any change m of 2.5."""
    workers = [begin("shards=1,algorithm=fedadam,rate=0.1")]
    make(workers, places(1))
    assert commit(workers) == pytest.approx(0.1 * 2.5 / (2.5 + 1e-3))


@pytest.mark.parametrize(
    ("stale", "verdict"), [("refuse", "refused"), ("bound:1", "merged"), ("weighted", "merged")]
)
def test_a_late_client_is_refused_or_merged(stale: str, verdict: str) -> None:
    """The round ends without it, and it pushes version 0 when the newest is 1."""
    sync = f"shards=2,quorum=0.5,stale={stale},h=2"
    workers = [begin(sync, batch=5) for _ in range(2)]
    first = make(workers, places(2), slow=(1,))
    assert [push.client for push in first[0].told.pushes] == [0]
    assert list(first[0].told.drawn) == [0, 1]
    commit(workers)
    late = workers[1].federation.work
    assert late is not None
    assert (late.version, late.is_done) == (0, False)
    second = make(workers, places(2))
    by_client = {push.client: push for push in second[0].told.pushes if push.version == 0}
    assert by_client[1].verdict == verdict
    assert (by_client[1].weight > 0) == (verdict == "merged")
    assert sum(push.weight for push in second[0].told.pushes) == pytest.approx(1)
    commit(workers)


def test_an_older_update_that_has_come_already_is_no_round_by_itself() -> None:
    """It was complete just when the round before it ended: the other client is drawn all the same."""
    workers = [begin("shards=2,quorum=0.5,stale=bound:3,h=2", batch=5) for _ in range(2)]
    make(workers, places(2), slow=(1,))
    commit(workers)
    late = workers[1].federation.work
    assert late is not None
    late.enter_model()
    while not late.is_done:
        late.make_batch()
    late.leave_model()
    told = make(workers, places(2))[0].told
    assert [(push.client, push.version, push.verdict) for push in told.pushes] == [
        (0, 1, "accepted"),
        (1, 0, "merged"),
    ]
    assert told.reason == "1 of 2 clients, drawn with equal chances; 1 still at work for an older version"


def has_answered(worker: FederatedTraining) -> bool:
    return worker.federation.work is not None and worker.federation.work.is_done


def test_a_break_costs_only_the_update_of_who_died() -> None:
    """Two have answered, the third is lost: the others push what they have, and nobody trains anew."""
    workers = [begin("shards=3") for _ in range(3)]
    data = data_of(workers[0])
    broken = places(3)
    for place, worker in zip(broken, workers, strict=True):
        place.is_broken = partial(has_answered, worker)
    with pytest.raises(GenerationBrokenError):
        make(workers, broken)
    assert [weight_of(worker) for worker in workers] == [0.0] * 3
    left = workers[:2]
    made = make(left, places(2, generation=2))
    assert [one.trained for one in made] == [0, 0]
    samples = data[0] + data[1]
    assert commit(left) == pytest.approx(sum(samples) / len(samples) / 2)
    assert made[0].counts == [len(data[0]), len(data[1])]


def test_who_is_asked_to_leave_takes_the_others_along_and_all_keep_their_work() -> None:
    workers, asked = [begin("shards=2") for _ in range(2)], places(2)
    asked[1].leaves = True
    with pytest.raises(GenerationBrokenError, match="asked to leave"):
        make(workers, asked)
    assert all(worker.federation.work is not None for worker in workers)
    make(workers, places(2, generation=2))
    commit(workers)


def test_an_update_that_counted_unheard_is_not_counted_again() -> None:
    """The last worker broke off at the end of a round that the others committed, and takes their state."""
    workers = [begin("shards=2") for _ in range(2)]
    workers[1].federation.take(1)
    workers[1].federation.begin(0)
    work = workers[1].federation.work
    make(workers, places(2))
    commit(workers)
    workers[1].federation.work = work
    made = make(workers, places(2, generation=2))
    told = [(push.client, push.verdict, push.reason) for push in made[0].told.pushes if push.version == 0]
    assert told == [(1, "refused", "an update of this client from version 0 has counted already")]
    clients = made[0].told.clients
    assert sum(client.samples for client in clients) == 9 + sum(made[0].counts) == 18
    assert [client.refused_updates for client in clients] == [0, 1]


def test_rounds_without_a_finite_update_end_the_job_with_a_reason() -> None:
    workers = [begin("shards=1,h=3", rate=1e200)]
    with pytest.raises(FailedPreconditionError, match="no update that counts"):
        make(workers, places(1))
    assert weight_of(workers[0]) == 0.0


class Rows(Sharded):
    """Three shards, of which a node has one."""

    def __init__(self, own: int | None) -> None:
        super().__init__([2, 3, 4])
        self.own_shard = own

    def read(self, shard: int, epoch: int, first: int) -> Iterable[tuple[Tensor, Tensor]]:  # type: ignore[override]  # the samples' type
        assert self.own_shard in (None, shard), "data that this node doesn't have"
        one = torch.ones(1, dtype=torch.float64)
        return iter([(one, torch.tensor(10.0 * shard + i, dtype=torch.float64)) for i in range(first, 99)])


class Own(Means):
    def __init__(self, own: int | None) -> None:
        self._own = own

    def data(self) -> tuple[Sharded, Split]:  # type: ignore[override]  # data in shards
        return Rows(self._own), super().data()[1]


def test_nodes_with_a_shard_of_their_own_read_nothing_else() -> None:
    """By hand: the shards' means are 11 and 0.5, with 3 and 2 samples; a second worker of shard 1 rests."""
    workers = [begin("clients=1.0", Own(own)) for own in (1, 0, 1)]
    made = make(workers, places(3))
    assert made[0].counts == [3, 2, 0]
    assert commit(workers) == pytest.approx((11.0 * 3 + 0.5 * 2) / 5 / 2)


def test_a_shard_that_is_not_there_is_refused() -> None:
    with pytest.raises(InvalidArgumentError, match="a shard from 0 to 2"):
        begin("clients=1.0", Own(3))


def test_splits_have_each_sample_once_and_leave_nobody_without() -> None:
    task = Means()
    labels = torch.arange(60) % 3
    samples = Split(torch.ones(60, 1), labels)
    for split, alpha in ((DIRICHLET, 0.01), (SIZE, 0.05), ("even", 0.0)):
        rounds = FederatedRounds(split=split, alpha=alpha, shards=7)
        shards = split_of(task, samples, rounds, seed=4)
        again = split_of(task, samples, rounds, seed=4)
        assert all(torch.equal(a, b) for a, b in zip(shards, again, strict=True))
        assert sorted(torch.cat(shards).tolist()) == list(range(60))
        assert min(map(len, shards)) >= 1
    assert [len(shard) for shard in shards] == [9, 8, 9, 8, 9, 8, 9]


@pytest.mark.parametrize(
    ("sync", "message"),
    [
        ("shards=10", "at most 9, the samples of the training set"),
        ("shards=2,split=dirichlet:0.5", "one whole number a sample"),
    ],
)
def test_what_cannot_be_split_is_refused(sync: str, message: str) -> None:
    with pytest.raises(InvalidArgumentError, match=message):
        begin(sync)


class Normalised(Means):
    def model(self) -> nn.Module:
        return nn.Sequential(nn.BatchNorm1d(1), nn.Linear(1, 1)).double()


def test_batch_normalisation_is_refused() -> None:
    with pytest.raises(InvalidArgumentError, match="GroupNorm"):
        begin("shards=2", Normalised())


def test_who_is_drawn_follows_from_seed_round_and_belief() -> None:
    clients = list(range(10))
    even = dict.fromkeys(clients, 1.0)
    first = drawn(clients, 3, 7, 0, 0, even)
    assert first == drawn(clients, 3, 7, 0, 0, even)
    assert len({tuple(drawn(clients, 3, 7, step, 0, even)) for step in range(20)}) > 10
    assert drawn(clients, 20, 7, 0, 0, even) == clients
    assert drawn(clients, -1, 7, 0, 0, even) == []
    by_belief = FederatedRounds(sampling="belief")
    weights = weights_of([0, 1, 2], {0: 3.0, 1: 1.0, 2: -4.0}, by_belief)
    assert weights == {0: pytest.approx(2.25), 1: pytest.approx(0.75), 2: 0.1}
    taken = [drawn([0, 1, 2], 1, 7, step, 0, weights)[0] for step in range(400)]
    assert taken.count(0) > 2 * taken.count(1) > 2 * taken.count(2) > 0


def test_a_round_ends_when_enough_have_answered() -> None:
    most = FederatedRounds(quorum=0.9)
    assert not may_end(most, 10, 8, 5)
    assert may_end(most, 10, 9, 0)
    assert not may_end(most, 3, 2, 0)
    assert may_end(most, 0, 0, 1), "all are late: the first one that counts makes a version"
    assert not may_end(most, 0, 0, 0)


def test_numbers_stay_and_newcomers_get_free_ones() -> None:
    assert numbers_for([-1, 2, -1, 0], 4) == [1, 2, 3, 0]
    assert numbers_for([-1, -1, 0], 2) == [1, -1, 0]
    assert numbers_for([1, 1, -1], 3) == [1, -1, 0]
