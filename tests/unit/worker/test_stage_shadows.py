"""Aim: a stage that is lost goes on from its shadow, to the last bit as if nothing had happened.

Method: the stages are threads joined by queues; a lost one is made anew, and the others go on.
"""

import math
from collections.abc import Callable, Sequence

import pytest
import torch
from stages_in_threads import Lines, Pipeline, QueueLinks, Sparse, Waves, training_of
from torch import Tensor, nn

from peerloom.errors import InvalidArgumentError
from peerloom.kit.stage_ranks import StageRanks
from peerloom.services.trainer.generations.stage_states import GoOn, newest_states
from peerloom.worker.plan.pipeline_training import PipelineTraining
from peerloom.worker.plan.shadow_limits import MOST_OF_A_STEP, ShadowPace, StageRoom, why_no_room
from peerloom.worker.plan.shadowing import Shadowing
from peerloom.worker.plan.stage_change import ChangeLayout
from peerloom.worker.plan.stage_loop import evaluate_stage
from peerloom.worker.plan.stage_step import make_step
from peerloom.worker.plan.state_transfer import take_over

HOLDERS, NARROW = [1, 2, 0], StageRanks((1, 1))
Work = Callable[[PipelineTraining, QueueLinks], None]


class Patient(ShadowPace):
    """On a machine that others keep busy stages wait for each other, which says nothing of their shadows."""

    def why_not(self, waited_s: Sequence[float], step_s: Sequence[float]) -> str:
        return ""


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("peerloom.worker.plan.shadowing.ShadowPace", Patient)


class Normalised(Waves):
    """Buffers that move with each forward pass, and a schedule that wants each epoch's metric."""

    def model(self) -> nn.Module:
        return nn.Sequential(
            nn.Sequential(nn.Linear(6, 16), nn.BatchNorm1d(16)),
            nn.Tanh(),
            nn.Sequential(nn.Linear(16, 12), nn.BatchNorm1d(12)),
            nn.Linear(12, 3),
        )

    def scheduler(self, optimiser: torch.optim.Optimizer, total_steps: int) -> object:  # type: ignore[override]
        return torch.optim.lr_scheduler.ReduceLROnPlateau(optimiser, factor=0.5, patience=0)


def trained(count: int, sources: tuple[int, ...] = (), step: int = 0, is_settled: bool = True) -> Work:
    """So many steps with shadows, and the epochs between them, after the states of a `step` were given."""
    states, changes = Lines(3), Lines(3)

    def work(training: PipelineTraining, links: QueueLinks) -> None:
        ways = QueueLinks(states, links.rank)
        per_epoch = training.schedule.steps_per_epoch
        if sources:
            take_over(training, ways, sources, step)
            training.state.reopen_epoch(per_epoch)
        nodes = ["a", "b", "c"]
        training.begin_past()
        shadowing = Shadowing(training, links, ways, QueueLinks(changes, links.rank), HOLDERS, nodes)
        last = training.state.step + count
        while training.state.step < last:
            if training.state.evaluated < training.state.step // per_epoch:
                measured = evaluate_stage(training, links)
                shadowing.closed_epoch(measured.epoch, measured.metric)
            make_step(training, links, lambda: None, shadowing=shadowing)
        if is_settled:
            shadowing.settle()
        shadowing.close()
        assert shadowing.is_on, shadowing.why_not

    return work


def held(pipeline: Pipeline) -> list[set[tuple[int, int]]]:
    return [{(one.stage, one.step) for one in each.held()} for each in pipeline.trainings]


def states(pipeline: Pipeline) -> list[dict[str, Tensor]]:
    return [
        {name: tensor.clone() for name, tensor in each.state.tensors().items()} for each in pipeline.trainings
    ]


def check_same(found: list[dict[str, Tensor]], expected: list[dict[str, Tensor]]) -> None:
    for one, other in zip(found, expected, strict=True):
        assert one.keys() == other.keys()
        for name, tensor in other.items():
            assert torch.equal(one[name], tensor), name


@pytest.mark.parametrize("task", [Waves, Normalised])
def test_a_shadow_has_the_state_of_its_stage_to_the_last_bit(task: type[Waves]) -> None:
    pipeline = Pipeline(task(), "pipeline=3")
    pipeline.work(trained(9))
    for stage, holder in enumerate(HOLDERS):
        shadow = pipeline.trainings[holder].shadows[stage]
        assert shadow.steps() == (8, 9)
        shadow.go_to(9)
        check_same([shadow.state.tensors()], [states(pipeline)[stage]])


@pytest.mark.parametrize(("task", "lost"), [(Waves, 1), (Normalised, 0), (Normalised, 2)])
def test_a_lost_stage_goes_on_as_if_nothing_had_happened(task: type[Waves], lost: int) -> None:
    expected = Pipeline(task(), "pipeline=3")
    expected.work(trained(14))
    pipeline = Pipeline(task(), "pipeline=3")
    pipeline.work(trained(9, is_settled=False))
    starts = pipeline.trainings[0].blueprint.starts
    new = training_of(task(), "pipeline=3")
    new.enter(lost, starts=starts)
    pipeline.trainings[lost] = new
    found = newest_states(held(pipeline), StageRanks((1, 1, 1)))
    assert isinstance(found, GoOn)
    assert found.step in (8, 9), "the last change may have been on its way"
    for stage, training in enumerate(pipeline.trainings):
        if stage != lost:
            training.stay(found.step)
    pipeline.work(trained(14 - found.step, found.sources, found.step))
    check_same(states(pipeline), states(expected))


class Hidden(Waves):
    """Waves with a buffer that is no part of the state, and that only the constructor fills."""

    def model(self) -> nn.Module:
        model = super().model()
        assert isinstance(model, nn.Sequential)
        model[1].register_buffer("drawn", torch.rand(3), persistent=False)
        return model


def test_a_stage_whose_state_comes_draws_nothing() -> None:
    """Drawing a large model takes longer than all else that the others wait for."""
    training = training_of(Waves(), "pipeline=3")
    torch.manual_seed(11)
    training.enter(1, starts=training.blueprint.starts)
    drawn = torch.rand(1)
    torch.manual_seed(11)
    assert torch.equal(drawn, torch.rand(1))


def test_what_only_a_constructor_fills_is_there_also_where_the_state_comes() -> None:
    drawn = []
    for starts in ((), training_of(Hidden(), "pipeline=2").blueprint.starts):
        training = training_of(Hidden(), "pipeline=2")
        training.enter(0, starts=starts)
        [buffer] = [each for name, each in training.stage_model.whole.named_buffers() if "drawn" in name]
        drawn.append(buffer)
    assert torch.equal(*drawn)


def test_who_is_a_step_ahead_goes_back_with_the_others() -> None:
    expected = Pipeline(Normalised(), "pipeline=3")
    expected.work(trained(9))
    pipeline = Pipeline(Normalised(), "pipeline=3")
    pipeline.work(trained(10))
    for stage, training in enumerate(pipeline.trainings):
        assert {step for number, step in held(pipeline)[stage] if number == stage} == {9, 10}
        training.stay(9)
    check_same(states(pipeline), states(expected))


def test_what_a_broken_step_changed_is_taken_back() -> None:
    pipeline = Pipeline(Normalised(), "pipeline=3")
    pipeline.work(trained(5))
    before = states(pipeline)
    first = pipeline.trainings[0]
    first.stage_model(torch.rand(4, 6)).sum().backward()  # a forward pass moves the buffers
    first.stay(5)
    check_same(states(pipeline), before)
    assert all(parameter.grad is None for parameter in first.stage_model.parameters())


def test_a_sparse_gradient_is_refused_with_words() -> None:
    training = training_of(Sparse(), "pipeline=1:")
    training.enter(1)
    training.stage_model(torch.tensor([1, 2])).sum().backward()
    with pytest.raises(InvalidArgumentError, match="shadow=off"):
        ChangeLayout(training.stage_model).packed()


def test_shadows_need_room_for_a_state_and_what_waits() -> None:
    """Own past 100, ward's state 100, two changes of 30, the own one: 290 of 0.9 times what is free."""
    room = StageRoom(100, 30, 290 / 0.9 + 1, math.inf)
    assert why_no_room([room, room], [1, 0], ["a", "b"], NARROW) == ""
    why = why_no_room([room, room], [1, 0], ["a", "a"], NARROW)
    assert why.startswith("the worker of stage 1 has no room for it")
    on_gpu = StageRoom(100, 30, 400, 110)
    assert "on its accelerator" in why_no_room([on_gpu, on_gpu], [1, 0], ["a", "b"], NARROW)


def test_shadows_that_are_waited_for_too_long_end() -> None:
    """The two first steps don't count; then eight of 1 s, in each of which somebody waits 0.2 s."""
    pace = ShadowPace()
    assert MOST_OF_A_STEP == 0.15
    said = [pace.why_not([0.0, 0.2], [1.0, 0.9]) for _ in range(10)]
    assert said[:9] == [""] * 9
    assert "20% of the middle one of 8 steps" in said[9]
    fast = ShadowPace()
    assert {fast.why_not([9.0, 9.0], [9.0, 9.0]) for _ in range(2)} == {""}
    assert {fast.why_not([0.1, 0.1], [1.0, 1.0]) for _ in range(30)} == {""}


def test_a_pause_of_a_host_says_nothing_of_the_ways_of_shadows() -> None:
    """Steps of 1/64 s, of which each tenth waits twice as long; too slow ways show in 2 s of them, 128."""
    step_s, pace = 1 / 64, ShadowPace()
    for number in range(500):
        pause_s = 2 * step_s if number % 10 == 0 else 0.0
        assert pace.why_not([pause_s, 0.0], [step_s + pause_s, step_s + pause_s]) == ""
    slow = ShadowPace()
    said = [slow.why_not([step_s / 4, 0.0], [step_s, step_s]) for _ in range(130)]
    assert said[:129] == [""] * 129
    assert "25% of the middle one of 128 steps" in said[129]
