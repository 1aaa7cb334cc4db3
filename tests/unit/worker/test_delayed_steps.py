"""Rounds whose changes travel while the next one is computed, without a network."""

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
    commit,
    make,
    plain_steps,
    train,
    weights,
)
from torch import nn

from peerloom.kit.sync_grammar import parse_sync
from peerloom.worker.sync.local_steps import LocalSteps
from peerloom.worker.training import Training


class Normalised(Lines):
    """With a running mean and variance."""

    def model(self) -> nn.Module:
        return nn.Sequential(nn.Linear(3, 5), nn.BatchNorm1d(5), nn.Linear(5, 2)).double()


def test_a_round_s_changes_come_a_round_later_by_hand() -> None:
    """Two workers of shares 3:1, batches of 4, rounds of two; the local rate is 0.1.

    Gradients don't depend on w, so w is what it is without a delay; but the second round is computed before
    the first one's exchange is over, where each worker's own steps have led it from 1.
    """
    members = [begin(Slope(), "period=2,outer=nesterov:0.5:0.8,delay=1") for _ in range(2)]
    prompt = [begin(Slope(), "period=2,outer=nesterov:0.5:0.8") for _ in range(2)]
    x = (members[0].order(0) + 1.0).double()
    own = [
        0.1 * sum(float(batch[part].mean()) for batch in (x[:4], x[4:8])) for part in (slice(3), slice(3, 4))
    ]
    [_, loss] = train(members, [3, 1], rounds=2)
    train(prompt, [3, 1], rounds=2)
    assert weights(members[0]).tolist() == pytest.approx(weights(prompt[0]).tolist(), rel=1e-12)
    second = ((1 - own[0]) * float(x[8:11].sum()) + (1 - own[1]) * float(x[11])) / 4
    assert loss == pytest.approx(second, rel=1e-6)


@pytest.mark.parametrize("outer", ["average", "nesterov:1.0:0.6", "adam:0.01"])
def test_all_ranks_have_the_same_bits_after_each_round(outer: str) -> None:
    members = [begin(Paced(0.9), f"period=4,delay=1,outer={outer}") for _ in range(3)]
    train(members, [3, 1, 2], rounds=6)
    assert members[0].state.step == 18


def test_what_the_others_changed_is_in_the_round_after_the_next() -> None:
    """The second round is computed without it, so another worker's first one makes no difference to it."""

    def second_loss(others: int) -> float:
        members = [begin(Lines(), "period=3,delay=1", seed=3) for _ in range(1 + others)]
        return train(members, [1] * len(members), rounds=2)[1]

    assert second_loss(0) != second_loss(1), "its part of the samples is another"
    alone, pair = begin(Lines(), "period=3,delay=1"), [begin(Lines(), "period=3,delay=1") for _ in range(2)]
    train([alone], [1], rounds=2)
    train(pair, [1, 0], rounds=2)
    torch.testing.assert_close(weights(pair[1]), weights(alone), rtol=1e-12, atol=1e-14)


def test_the_running_mean_is_that_of_the_committed_rounds() -> None:
    alone, plain = begin(Normalised(), "period=2,delay=1", batch=11), plain_steps(Normalised(), 4, batch=11)
    train([alone], [1], rounds=2)
    assert alone.state.step == 4
    for own, expected in zip(alone.state.model.buffers(), plain.state.model.buffers(), strict=True):
        torch.testing.assert_close(own, expected, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("check", [1, 3, 4, 5])
def test_what_breaks_undoes_both_rounds_and_they_are_made_again(check: int) -> None:
    """Before the next round's first step, before its third, at its end, and before the commit."""
    check_break_undoes(check, "period=3,delay=1", rounds=2)


def test_another_generation_computes_again_what_was_ahead() -> None:
    """Its shares may be others. A round of three has three looks whether to leave, and one at its end."""
    training = begin(Lines(0.9), "period=3,delay=1")
    looks = []
    for generation in (1, 1, 2, 2):
        seat = Seat(0, generation=generation)
        make(training, Memory(1), seat, [1])
        commit(training)
        looks.append(len(seat.checks))
    assert looks == [4 + 4 + 1, 4 + 1, 4 + 4 + 1, 4 + 1]
    torch.testing.assert_close(weights(training), weights(plain_steps(Lines(0.9), 12)), rtol=1e-9, atol=1e-12)


def test_it_tells_what_is_committed_while_it_computes_what_is_not() -> None:
    training, seat = begin(Lines(), "period=3,delay=1"), Seat(0)
    train([training], [1], rounds=1)
    make(training, Memory(1), seat, [1])
    assert seat.checks == [3, 3, 3, 3, None]


def test_the_last_round_has_none_to_be_computed_meanwhile() -> None:
    """Three epochs of six batches."""
    training, seat = begin(Lines(), "period=6,delay=1"), Seat(0)
    train([training], [1], rounds=2)
    make(training, Memory(1), seat, [1])
    assert seat.checks == [None]


@pytest.mark.parametrize(("first", "then"), [("", ",delay=1"), (",delay=1", ""), (",delay=1", ",delay=1")])
def test_the_delay_may_change_in_mid_training(first: str, then: str) -> None:
    """What is ahead is computed again; moments and schedule go on."""
    training = begin(Paced(0.9), f"period=4{first}")
    train([training], [1], rounds=2)
    training.use(parse_sync("sync", f"period=3{then}"))
    train([training], [1], rounds=4)
    assert training.state.step == 18
    torch.testing.assert_close(weights(training), weights(plain_steps(Paced(0.9), 18)), rtol=1e-9, atol=1e-12)


def test_without_rounds_steps_go_on_where_the_committed_ones_end() -> None:
    training: Training = begin(Lines(), "period=3,delay=1")
    train([training], [1], rounds=2)
    before = weights(training)
    training.use(parse_sync("sync", ""))
    assert not isinstance(training.local_steps, LocalSteps)
    assert torch.equal(weights(training), before)
