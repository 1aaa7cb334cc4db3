"""Rounds of local steps, without a network: each rank is a thread, and their changes meet in memory."""

from collections.abc import Iterable

import pytest
import torch
from rounds_in_memory import (
    Lines,
    Memory,
    Paced,
    Seat,
    Slope,
    begin,
    check_break_undoes,
    make,
    own_step,
    plain_steps,
    train,
    weights,
)
from torch import nn

from peerloom.errors import DataLossError
from peerloom.kit.sync_grammar import parse_sync
from peerloom.kit.sync_method import SyncMethod
from peerloom.v1.trainer_pb2 import JobSpec, StepProgress
from peerloom.worker.beginning import prepared_of
from peerloom.worker.round_work import each_step
from peerloom.worker.task import Task


@pytest.mark.parametrize("task", [Lines(0.9), Paced(0.9)], ids=["momentum", "schedule and clipping"])
@pytest.mark.parametrize("delay", [0, 1])
@pytest.mark.parametrize(("sync", "rounds"), [("period=1", 12), ("period=4", 4), ("period=100", 2)])
def test_one_worker_that_averages_makes_the_steps_of_its_task(
    sync: str, rounds: int, delay: int, task: Task
) -> None:
    """Two epochs of six batches, whose rounds of four are of four and two, four and two."""
    alone = begin(task, f"{sync},delay={delay}")
    train([alone], [1], rounds)
    assert alone.state.step == 12
    torch.testing.assert_close(weights(alone), weights(plain_steps(task, 12)), rtol=1e-9, atol=1e-12)


def test_rounds_of_one_batch_without_momentum_are_steps_of_the_sum_of_gradients() -> None:
    """Three workers with shares 3:1:2; of the last batch's two samples one gets none."""
    members = [begin(Lines(), "period=1") for _ in range(3)]
    train(members, [3, 1, 2], rounds=6)
    torch.testing.assert_close(weights(members[0]), weights(plain_steps(Lines(), 6)), rtol=1e-12, atol=1e-14)


def test_outer_momentum_by_hand() -> None:
    """Two workers of shares 3:1, batches of 4, rounds of two; the local rate is 0.1.

    A worker's change of w in a round is 0.1 times the sum of its batches' means; the round's is their mean by
    samples, 3/4 of the first's and 1/4 of the other's.
    """
    members = [begin(Slope(), "period=2,outer=nesterov:0.5:0.8") for _ in range(2)]
    x = members[0].order(0) + 1.0
    changes = []
    for batches in ([x[:4], x[4:8]], [x[8:12]]):  # the epoch's last round is shorter
        first = 0.1 * sum(float(batch[:3].double().mean()) for batch in batches)
        second = 0.1 * sum(float(batch[3:].double().mean()) for batch in batches)
        changes.append(0.75 * first + 0.25 * second)
    losses = train(members, [3, 1], rounds=2)
    # The momentum is first the change itself; then 0.8 of it is added to the next change.
    after_one = 1 - 0.5 * (changes[0] + 0.8 * changes[0])
    after_two = after_one - 0.5 * (changes[1] + 0.8 * (0.8 * changes[0] + changes[1]))
    assert weights(members[0]).tolist() == pytest.approx([after_two], rel=1e-9)
    # In the second round w is `after_one` for both: the loss is the mean of w * x over its samples.
    assert losses[1] == pytest.approx(after_one * float(x[8:12].mean()), rel=1e-6)


def test_who_has_no_samples_makes_no_step_and_gets_the_sum() -> None:
    trains, listens = begin(Lines(0.9), "period=3"), begin(Lines(0.9), "period=3")
    alone = begin(Lines(0.9), "period=3")
    train([trains, listens], [1, 0], rounds=2)
    train([alone], [1], rounds=2)
    torch.testing.assert_close(weights(listens), weights(alone), rtol=1e-12, atol=1e-14)


class HalfTrained(Lines):
    """Its optimiser has the first layer only."""

    def optimiser(self, parameters: Iterable[nn.Parameter], learning_rate: float) -> torch.optim.Optimizer:
        return super().optimiser(list(parameters)[:2], learning_rate)


def test_what_the_task_s_optimiser_leaves_alone_stays_as_it_is() -> None:
    """It has gradients in the local steps, and no change."""
    training = begin(HalfTrained(), "period=3,outer=nesterov:1.0:0.6")
    before = [parameter.clone() for parameter in training.state.model.parameters()]
    train([training], [1], rounds=3)
    stayed = [
        torch.equal(one, other) for one, other in zip(before, training.state.model.parameters(), strict=True)
    ]
    assert stayed == [False, False, True, True]


@pytest.mark.parametrize("check", [1, 3, 4, 5])
def test_a_round_that_breaks_changes_nothing_and_is_made_again(check: int) -> None:
    """Before its first step, before its third, before the exchange, and before its commit."""
    check_break_undoes(check, "period=3", rounds=1)


def test_between_two_local_steps_a_rank_looks_whether_to_leave() -> None:
    """It tells what is committed, so one that should have left where the round began leaves within it."""
    training, seat = begin(Lines(), "period=3"), Seat(0)
    train([training], [1], rounds=1)
    make(training, Memory(1), seat, [1])
    assert seat.checks == [3, 3, 3, 3, None]


def test_whoever_gets_another_state_begins_with_fresh_moments() -> None:
    ahead, behind = begin(Lines(0.9), "period=3"), begin(Lines(0.9), "period=3")
    train([ahead], [1], rounds=4)
    train([behind], [1], rounds=2)
    behind.state.from_bytes(ahead.state.to_bytes())
    fresh = begin(Lines(0.9), "period=3")
    fresh.state.from_bytes(ahead.state.to_bytes())
    for training in (behind, fresh):
        train([training], [1], rounds=1)
    assert torch.equal(weights(behind), weights(fresh))
    train([ahead], [1], rounds=1)
    assert not torch.equal(weights(ahead), weights(fresh)), "its own have survived"


def test_a_newcomer_s_schedule_is_where_the_others_are() -> None:
    """Of 18 batches 8 are done: the rate has fallen by 8 / 18 of 0.9."""
    ahead, newcomer = begin(Paced(), "period=2"), begin(Paced(), "period=2")
    train([ahead], [1], rounds=4)
    newcomer.state.from_bytes(ahead.state.to_bytes())
    assert ahead.local_steps is not None
    assert ahead.local_steps.updater.learning_rate == pytest.approx(0.1 * (1 - 0.9 * 8 / 18))
    train([ahead, newcomer], [1, 1], rounds=1)
    rates = [one.local_steps.updater.learning_rate for one in (ahead, newcomer) if one.local_steps]
    assert rates == pytest.approx([0.1 * (1 - 0.9 * 10 / 18)] * 2)


def test_the_outer_momentum_is_in_the_state_and_the_task_s_own_is_not() -> None:
    training = begin(Lines(0.9), "period=2,outer=nesterov:1.0:0.6")
    train([training], [1], rounds=1)
    other = begin(Lines(0.9), "period=2,outer=nesterov:1.0:0.6")
    other.state.from_bytes(training.state.to_bytes())
    assert other.state.fingerprint() == training.state.fingerprint()
    [entries] = [group["momentum"] for group in other.state.updater.optimisers[0].param_groups]
    assert entries == 0.6
    assert len(other.state.updater.optimisers[0].state) == 4, "a momentum for each of the parameters"


def test_rounds_that_begin_in_mid_training_go_on_with_its_moments() -> None:
    """One worker that averages makes the steps of its task, so nothing may change where rounds begin."""
    training = begin(Paced(0.9), "")
    for step in range(5):
        own_step(training, step)
    training.use(parse_sync("sync", "period=4"))
    train([training], [1], rounds=3)  # up to the epoch's end after one step, then four and two
    assert training.state.step == 12
    torch.testing.assert_close(weights(training), weights(plain_steps(Paced(0.9), 12)), rtol=1e-9, atol=1e-12)


def test_where_rounds_end_all_begin_with_new_moments_and_the_schedule_as_it_is() -> None:
    """Each has moments of its own in rounds; nobody could go on with those of another."""
    members = [begin(Paced(0.9), "period=3") for _ in range(2)]
    train(members, [3, 1], rounds=2)
    for member in members:
        member.use(SyncMethod())
    assert len({member.state.fingerprint() for member in members}) == 1
    assert members[0].local_steps is None
    assert members[0].state.updater.moments() == []
    assert members[0].state.updater.learning_rate == pytest.approx(0.1 * (1 - 0.9 * 6 / 18))


@pytest.mark.parametrize(("written", "used"), [("", "period=4"), ("period=4", ""), ("period=4", "period=2")])
def test_a_checkpoint_of_another_method_is_taken_and_the_method_goes_on(written: str, used: str) -> None:
    writer, reader = begin(Lines(0.9), written), begin(Lines(0.9), used)
    if written:
        train([writer], [1], rounds=1)
    else:
        for step in range(4):
            own_step(writer, step)
    reader.restore(writer.state.to_bytes())
    assert torch.equal(weights(reader), weights(writer))
    method = parse_sync("sync", used)
    reader.use(method)
    assert (reader.state.step, reader.state.rounds) == (4, str(method.rounds or ""))
    assert (reader.local_steps is not None) == bool(used)


def test_a_state_of_another_method_is_refused_where_it_is_no_checkpoint() -> None:
    """From living workers of the same generation it can't come."""
    writer, reader = begin(Lines(0.9), "period=4"), begin(Lines(0.9), "")
    with pytest.raises(DataLossError, match="its rounds are period=4,outer=average, and not none"):
        reader.state.from_bytes(writer.state.to_bytes())


class WithPlateau(Lines):
    def scheduler(
        self, optimiser: torch.optim.Optimizer, total_steps: int
    ) -> torch.optim.lr_scheduler.LRScheduler:
        return torch.optim.lr_scheduler.ReduceLROnPlateau(optimiser)


def test_a_job_whose_rate_follows_a_metric_bears_no_rounds() -> None:
    paced, by_metric = begin(Paced(), ""), begin(WithPlateau(), "")
    assert paced.bears_rounds
    assert not by_metric.bears_rounds
    assert prepared_of(paced, JobSpec()).bears_rounds
    assert not prepared_of(by_metric, JobSpec()).bears_rounds


def test_each_step_of_a_round_is_told_with_its_samples_and_its_part() -> None:
    """22 samples in batches of 4: steps 5 and 6 have 4 and 2; of 7 bytes the first has 3."""
    schedule = begin(Lines(), "period=4").schedule
    whole = StepProgress(
        step=5, total_steps=18, epoch=1, loss=0.25, samples=6, step_s=3.0, compute_s=2.0, communication_s=1.0
    )
    whole.communicated_bytes, whole.first_sample = 7, 16
    whole.batch_shares.extend([3, 1])
    first, second = each_step(whole, range(4, 6), schedule)
    assert [(one.step, one.first_sample, one.samples) for one in (first, second)] == [(5, 16, 4), (6, 20, 2)]
    assert [one.communicated_bytes for one in (first, second)] == [3, 4]
    assert [(one.step_s, one.compute_s, one.communication_s) for one in (first, second)] == [
        (1.5, 1.0, 0.5)
    ] * 2
    assert [list(one.batch_shares) for one in (first, second)] == [[3, 1], []]
    assert {one.loss for one in (first, second)} == {0.25}
