"""When gradients are there, by a clock that the tests move; what a worker keeps of it; codecs' speeds."""

from collections.abc import Callable

import pytest
import torch

from peerloom.kit.sync_model.sync_choice import EXACT, NEAR, RELAXED, candidates
from peerloom.v1.trainer_pb2 import MeasuredLayer
from peerloom.worker.measuring import layer_clock
from peerloom.worker.measuring.codec_speed import codec_speeds
from peerloom.worker.measuring.layer_clock import STEPS, WARM_UP_STEPS, LayerClock
from peerloom.worker.measuring.node_measures import NodeMeasures
from peerloom.worker.measuring.sync_measuring import usable
from peerloom.worker.tasks.digits import Digits

CPU = torch.device("cpu")
SHORT_S = 0.01  # of a step: so few make no second


def model() -> torch.nn.Module:
    return torch.nn.Sequential(torch.nn.Linear(4, 3, bias=False), torch.nn.Linear(3, 2, bias=False))


def clock_of(trained: torch.nn.Module, times: list[float]) -> tuple[LayerClock, Callable[[], None]]:
    """A clock that reads these times in each step, again and again; and what makes a pass."""
    read = iter(times * 100)
    return LayerClock(trained, lambda: next(read)), lambda: trained(torch.ones(1, 4)).sum().backward()


def test_a_layer_takes_the_time_between_two_gradients() -> None:
    """The forward pass ends at 10 s, the last layer's gradient is there at 12 s, the first one's at 15 s."""
    clock, make = clock_of(model(), [10.0, 12.0, 15.0])
    for number in range(WARM_UP_STEPS + STEPS):
        assert clock.layers() == []
        make()
        assert clock.after_step(7.0, SHORT_S) == (number == WARM_UP_STEPS + STEPS - 1)
    # Two of the seven seconds aren't backward pass; they go with the layers' parts of it.
    assert clock.layers() == [
        MeasuredLayer(parameters=12, forward_s=2.0 * 3 / 5, backward_s=3.0),
        MeasuredLayer(parameters=6, forward_s=2.0 * 2 / 5, backward_s=2.0),
    ]


@pytest.mark.parametrize(("step_s", "steps"), [(0.1, 5), (0.3, 4), (0.4, 3), (0.5, 2), (9.0, 2)])
def test_of_long_steps_fewer_are_enough(step_s: float, steps: int) -> None:
    """Two that make a second, after the one that warms up."""
    clock, make = clock_of(model(), [10.0, 12.0, 15.0])
    for _ in range(WARM_UP_STEPS + steps - 1):
        make()
        assert not clock.after_step(7.0, step_s)
    make()
    assert clock.after_step(7.0, step_s)
    assert [one.backward_s for one in clock.layers()] == [3.0, 2.0]


@pytest.mark.parametrize(("steps", "rounds"), [(16, 1), (6, 1), (5, 2), (2, 3)])
def test_the_steps_of_a_round_count_as_so_many(steps: int, rounds: int) -> None:
    """One warms up, and five more are enough; each round's last gradients are heard."""
    clock, make = clock_of(model(), [10.0, 12.0, 15.0])
    for number in range(1, rounds + 1):
        for _ in range(steps):
            make()
        assert clock.after_step(7.0, SHORT_S, steps) == (number == rounds)
    assert [one.backward_s for one in clock.layers()] == [3.0, 2.0]


def test_of_a_batch_in_pieces_the_last_one_s_gradients_count() -> None:
    """The first piece's pass is a part of what comes before: its gradients don't travel."""
    clock, make = clock_of(model(), [10.0, 12.0, 15.0, 20.0, 21.0, 22.0])
    for _ in range(WARM_UP_STEPS + STEPS):
        make()
        make()
        clock.after_step(12.0, SHORT_S)
    assert [(one.backward_s, one.forward_s) for one in clock.layers()] == [(1.0, 5.0), (1.0, 5.0)]


def test_it_leaves_the_model_as_it_was() -> None:
    trained = model()
    clock, make = clock_of(trained, [10.0, 12.0, 15.0])
    for _ in range(WARM_UP_STEPS + STEPS):
        make()
        clock.after_step(7.0, SHORT_S)
    heard = clock.layers()
    make()
    clock.after_step(1e9, SHORT_S)
    assert clock.layers() == heard
    assert not trained._forward_hooks


def test_small_layers_are_told_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(layer_clock, "MOST_GROUPS", 1)
    clock, make = clock_of(model(), [10.0, 12.0, 15.0])
    for _ in range(WARM_UP_STEPS + STEPS):
        make()
        clock.after_step(7.0, SHORT_S)
    assert clock.layers() == [MeasuredLayer(parameters=18, forward_s=2.0, backward_s=5.0)]


def test_layers_follow_the_share_of_the_batch() -> None:
    known = NodeMeasures()
    assert not known.has_layers
    known.note_layers([MeasuredLayer(parameters=5, forward_s=1.0, backward_s=2.0)], samples=8)
    assert known.layers(16) == [MeasuredLayer(parameters=5, forward_s=2.0, backward_s=4.0)]


def test_each_codec_of_a_quality_is_timed_once() -> None:
    speeds = codec_speeds(candidates(NEAR), CPU)
    assert [one.codec for one in speeds] == ["fp16", "bf16", "int8", "mxfp4"]
    assert all(one.encode_s > 0 and one.decode_s > 0 for one in speeds)
    assert codec_speeds(candidates(EXACT), CPU) == []


def test_what_the_task_cannot_be_trained_with_is_not_timed() -> None:
    """Error feedback in the scale of another step would be wrong."""

    class Halved(Digits):
        autocast = "fp16"

    assert {one.codec for one in usable(Halved(), model(), NEAR)} == {"none", "fp16", "bf16"}
    assert {one.codec for one in usable(Digits(), model(), NEAR)} == {"none", "fp16", "bf16", "int8", "mxfp4"}


def test_a_rank_that_the_model_has_no_matrix_for_is_not_timed() -> None:
    """4 by 3 and 3 by 2; those of the digits have sides of 9, 32 and 10."""
    assert {one.codec for one in usable(Digits(), model(), RELAXED) if one.low_rank} == set()
    found = [one for one in usable(Digits(), Digits().model(), RELAXED) if one.low_rank]
    assert {one.codec for one in found} == {"powersgd"}
    [speed] = codec_speeds(found, CPU)
    assert (speed.codec, speed.encode_s > 0, speed.decode_s > 0) == ("powersgd", True, True)
