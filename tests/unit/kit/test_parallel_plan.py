"""The words of a plan, and how a batch is divided into micro-batches."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from peerloom.errors import InvalidArgumentError
from peerloom.kit.parallel_plan import ParallelPlan, micro_batch_sizes, parse_plan


@pytest.mark.parametrize(
    ("text", "plan", "whole"),
    [
        ("", ParallelPlan(), "data"),
        ("data", ParallelPlan(), "data"),
        ("pipeline=4", ParallelPlan(4, (), 16), "pipeline=4,micro_batches=16"),
        ("micro_batches=3,pipeline=2", ParallelPlan(2, (), 3), "pipeline=2,micro_batches=3"),
        ("pipeline=3:7:12", ParallelPlan(4, (3, 7, 12), 16), "pipeline=3:7:12,micro_batches=16"),
        ("pipeline=5:", ParallelPlan(2, (5,), 8), "pipeline=5:,micro_batches=8"),
        ("order=1f1b,activations=none,pipeline=2", ParallelPlan(2, (), 8), "pipeline=2,micro_batches=8"),
        (
            "pipeline=2,order=gpipe,activations=int8",
            ParallelPlan(2, (), 8, "gpipe", "int8"),
            "pipeline=2,micro_batches=8,order=gpipe,activations=int8",
        ),
        (
            "pipeline=2,widths=2/1",
            ParallelPlan(2, (), 12, widths=(2, 1)),
            "pipeline=2,widths=2/1,micro_batches=12",
        ),
        (
            "pipeline=5:,widths=1/3,micro_batches=3,shadow=off",
            ParallelPlan(2, (5,), 3, shadow=False, widths=(1, 3)),
            "pipeline=5:,widths=1/3,micro_batches=3,shadow=off",
        ),
        ("pipeline=2,widths=1/1", ParallelPlan(2, (), 8), "pipeline=2,micro_batches=8"),
        ("sharded=3", ParallelPlan(3, (), 3, is_sharded=True), "sharded=3"),
        ("tensor=3", ParallelPlan(micro_batches=1, pieces=3), "tensor=3,micro_batches=1"),
        (
            "shadow=off,tensor=2,micro_batches=4",
            ParallelPlan(micro_batches=4, shadow=False, pieces=2),
            "tensor=2,micro_batches=4,shadow=off",
        ),
        (
            "tensor=2,pipeline=3:7,order=zb-h1",
            ParallelPlan(3, (3, 7), 12, "zb-h1", pieces=2),
            "pipeline=3:7,tensor=2,micro_batches=12,order=zb-h1",
        ),
        (
            "shadow=off,sharded=5:",
            ParallelPlan(2, (5,), 2, shadow=False, is_sharded=True),
            "sharded=5:,shadow=off",
        ),
    ],
)
def test_a_plan_is_read_and_written_with_all_its_pairs(text: str, plan: ParallelPlan, whole: str) -> None:
    assert parse_plan("plan", text) == plan
    assert str(plan) == whole
    assert parse_plan("plan", whole) == plan


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("pipelin=2", "did you mean pipeline?"),
        ("pipeline", "pipeline=K"),
        ("pipeline=1", "from 2 to 64"),
        ("pipeline=65", "from 2 to 64"),
        ("pipeline=two", "from 2 to 64"),
        ("pipeline=2,pipeline=3", "pipeline=K"),
        ("micro_batches=4", "pipeline=K, tensor=K or sharded=K too"),
        ("pipeline=2,micro_batches=0", "from 1 to 4,096"),
        ("pipeline=2,order=gpip", "did you mean gpipe?"),
        ("pipeline=2,activations=int4", "one of none, bf16, int8, did you mean int8?"),
        ("order=gpipe", "pipeline=K, tensor=K or sharded=K too"),
        ("pipeline=7:3", "in growing order"),
        ("pipeline=0:3", "from 1 to 1,000,000"),
        ("pipeline=3::4", "from 1 to 1,000,000"),
        ("data,micro_batches=2", "pipeline=K"),
        ("widths=2/1", "pipeline=K, tensor=K or sharded=K too"),
        ("sharded=1", "sharded with a whole number from 2 to 64"),
        ("sharded=2,widths=2/1", "without widths"),
        ("sharded=2,pipeline=2", "without pipeline"),
        ("sharded=2,shadow=no", "shadow as one of on, off"),
        ("sharded=2,tensor=2", "without tensor"),
        ("tensor=1", "tensor with a whole number from 2 to 64"),
        ("tensor=2,widths=1/1", "without widths"),
        ("tensor=2,order=gpipe", "without order, or pipeline=K too"),
        ("tensor=2,activations=int8", "without activations, or pipeline=K too"),
        ("pipeline=2,tensor=2,widths=2/1", "take no turns"),
        ("pipeline=9,tensor=8", "at most 64 workers in all stages, not 72"),
        ("tenser=2", "did you mean tensor?"),
        ("shardde=2", "did you mean sharded?"),
        ("pipeline=2,widths=2", "each of the 2 stages, as in widths=2/1, not 1"),
        ("pipeline=2,widths=2/1/1", "each of the 2 stages, as in widths=2/1, not 3"),
        ("pipeline=2,widths=2/0", "a stage's workers with a whole number from 1 to 64"),
        ("pipeline=2,widths=60/5", "at most 64 workers in all stages, not 65"),
        ("pipeline=2,widths=3/1,micro_batches=2", "at least 3 micro_batches"),
        ("p" * 513, "at most 512 characters"),
    ],
)
def test_what_is_no_plan_is_refused_with_what_would_be_one(text: str, said: str) -> None:
    with pytest.raises(InvalidArgumentError, match=said):
        parse_plan("plan", text)


def test_of_layers_in_pieces_each_stage_has_as_many_workers() -> None:
    plan = parse_plan("plan", "pipeline=3,tensor=2")
    assert (plan.kind, plan.parts, plan.is_divided, list(plan.losers())) == ("pipeline", 6, True, [4])
    alone = parse_plan("plan", "tensor=2")
    assert (alone.kind, alone.parts, alone.is_divided, list(alone.losers())) == ("tensor", 2, True, [0])


def test_a_batch_that_does_not_divide_gives_the_first_ones_more() -> None:
    assert micro_batch_sizes(10, 4) == [3, 3, 2, 2]
    assert micro_batch_sizes(3, 8) == [1, 1, 1], "no micro-batch is empty"
    assert micro_batch_sizes(7, 8, least=2) == [3, 2, 2], "batch normalisation needs two"
    assert micro_batch_sizes(1, 4, least=2) == [1], "there is no more"


@given(st.integers(1, 500), st.integers(1, 64), st.integers(1, 2))
def test_each_sample_is_in_one_micro_batch_of_about_equal_size(samples: int, parts: int, least: int) -> None:
    sizes = micro_batch_sizes(samples, parts, least)
    assert sum(sizes) == samples
    assert max(sizes) - min(sizes) <= 1
    assert len(sizes) <= parts
    assert min(sizes) >= min(least, samples)
