"""The pure rules of inference: admission, batches, room, costs, pace, hedging, and combined answers."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from peerloom.client.types.inference import RouteEstimate
from peerloom.errors import InvalidArgumentError, ResourceExhaustedError, UnavailableError
from peerloom.inference.client.costs import (
    BatchTimes,
    InferenceBatch,
    Place,
    StagePlace,
    after_refusal,
    choose,
    local_s,
    remote_s,
    split_s,
)
from peerloom.inference.client.decoding import sampler
from peerloom.inference.client.ensemble import combine
from peerloom.inference.client.estimator import holds_s
from peerloom.inference.client.hedging import hedge_after_s, may_hedge, silent_after_s
from peerloom.inference.client.remote import split_rows
from peerloom.inference.server.batching import admit, batch_limit, late, take_batch, to_drop
from peerloom.kit.tensors import array_of, check_finite, message_of
from peerloom.v1.inference_pb2 import Tensor

PLACE = Place("n", round_trip_s=0.01, bytes_per_s=1000.0, sample_s=0.1, queue_s=0.5, ready_s=2.0)


def test_where_no_route_is_possible_each_says_why() -> None:
    estimates = (RouteEstimate("remote", None, "all are away"), RouteEstimate("local", None, "no torch"))
    with pytest.raises(UnavailableError, match="remote not: all are away; local not: no torch"):
        choose(estimates)


def test_an_idle_server_takes_even_what_is_too_large_for_its_queue() -> None:
    assert admit(0, 1000, 10, 0.1, 0.01).admitted


def test_a_full_queue_sends_away_until_there_is_room() -> None:
    """8 wait and 4 come, 10 may: 2 too many, of 0.5 s each."""
    decision = admit(8, 4, 10, 0.5, None)
    assert not decision.admitted
    assert decision.retry_after_s == pytest.approx(1.0)


def test_a_deadline_that_the_queue_breaks_is_refused_at_once() -> None:
    """4 wait and 1 comes at 0.5 s each: 2.5 s and a tenth, 1.25 more than the deadline leaves."""
    decision = admit(4, 1, 100, 0.5, 1.5)
    assert (decision.admitted, decision.retry_after_s) == (False, pytest.approx(1.25))
    assert admit(4, 1, 100, 0.5, 2.76).admitted


def test_what_is_being_computed_counts_against_a_deadline() -> None:
    """Nobody waits, but 0.8 s are under way and 0.5 s come: 1.3 s and a tenth, the deadline leaves 1 s."""
    decision = admit(0, 1, 100, 0.5, 1.0, 0.8)
    assert (decision.admitted, decision.retry_after_s) == (False, pytest.approx(0.43))
    assert admit(0, 1, 100, 0.5, 1.44, 0.8).admitted


def test_nobody_is_answered_before_all_of_a_batch_are() -> None:
    """5 wait and 1 comes, 4 are computed together at 0.5 s each: the second batch takes until 4.4 s."""
    decision = admit(5, 1, 100, 0.5, 4.3, batch_samples=4)
    assert (decision.admitted, decision.retry_after_s) == (False, pytest.approx(0.1))
    assert admit(5, 1, 100, 0.5, 4.41, batch_samples=4).admitted


def test_of_those_who_wait_the_late_ones_make_room() -> None:
    """At 1 s a sample, two together: the batches are over after 2.2 s and 4.4 s."""
    waiting = [(1, 2.1), (1, 2.3), (1, None), (1, 3.5), (1, 4.5)]
    assert list(late(waiting, 1.0, 2)) == [0, 3]
    assert late(waiting, 1.0, 2)[0].retry_after_s == pytest.approx(0.1)
    assert late([(1, 0.5)], 1.0, 2) == {}
    assert late([], 1.0, 2) == {}


def test_a_batch_is_no_larger_than_all_who_wait() -> None:
    """Two wait for 1 s each, and 32 came together before: both are answered after 2.2 s."""
    assert late([(1, 2.3), (1, 2.3)], 1.0, 32) == {}
    assert list(late([(1, 2.1), (1, 2.3)], 1.0, 32)) == [0]


def test_a_batch_takes_no_more_than_a_quarter_of_the_oldest_one_s_time() -> None:
    """At 0.1 s a sample and 8 s left: 2 s, 20 samples; more only where more came together before."""
    assert batch_limit(256, 1, 0.1, 8.0) == 20
    assert batch_limit(256, 30, 0.1, 8.0) == 30
    assert batch_limit(16, 30, 0.1, 8.0) == 16
    assert batch_limit(256, 1, 0.1, None) == 256


def test_as_long_as_nobody_knows_what_a_sample_takes_one_request_is_tried_alone() -> None:
    assert batch_limit(256, 1, 0.0, 8.0) == 1
    assert batch_limit(256, 1, 0.0, None) == 256


@given(st.lists(st.integers(1, 50), min_size=1), st.integers(1, 100))
def test_a_batch_holds_as_much_as_fits_but_at_least_the_oldest(waiting: list[int], limit: int) -> None:
    taken = take_batch(waiting, limit)
    assert taken >= 1
    assert taken == 1 or sum(waiting[:taken]) <= limit
    assert taken == len(waiting) or sum(waiting[: taken + 1]) > limit


def test_the_least_recently_used_model_goes_first_and_one_in_use_stays() -> None:
    sizes = [("old", 40), ("used", 40), ("new", 20)]
    assert to_drop(sizes, {"used"}, 40, 100) == ["old"]
    assert to_drop(sizes, {"used"}, 60, 100) == ["old", "new"]
    assert to_drop(sizes, set(), 0, 100) == []


def test_costs_by_hand() -> None:
    """Remote: 2 + 0.01 + 500/1000 + 0.5 + 3*0.1. Split, 3 micro-batches of 1 sample over two stages: steps
    0.1 (input), 0.2, 0.05, 0.1, 0.05; filling 0.5, then twice the slowest; three half ways of 0.01."""
    request = InferenceBatch(samples=3, input_bytes=300, output_bytes=200)
    assert remote_s(request, PLACE) == pytest.approx(3.31)
    near = Place("n", 0.01, 1000.0, 0.1)
    stages = [StagePlace(near, 0.2, 50), StagePlace(near, 0.1, 50)]
    assert split_s(request, stages, 8) == pytest.approx(0.5 + 2 * 0.2 + 0.015)
    assert local_s(request, 1.0, 0.5, 0.1) == pytest.approx(1.8)


def test_the_fastest_possible_way_is_taken_and_the_others_are_named() -> None:
    estimates = [
        RouteEstimate("remote", 0.2, "near"),
        RouteEstimate("local", None, "no torch"),
        RouteEstimate("split", 0.1, "two"),
    ]
    mode, reason = choose(estimates)
    assert mode == "split"
    assert reason == "split takes 100 ms (two); remote 200 ms; local not: no torch"


def test_a_pace_is_learned_by_batch_size() -> None:
    """1 sample in 1 s and 9 in 5 s: 5 lie half way; 18 take twice what 9 do; before any, the guess counts."""
    pace = BatchTimes(guess_s=0.5)
    assert pace.predict_s(4) == 2.0
    pace.note(9, 5.0)
    assert pace.predict_s(1) == pytest.approx(max(5 / 9, 0.5))
    pace.note(1, 1.0)
    assert pace.predict_s(5) == pytest.approx(3.0)
    assert pace.predict_s(18) == pytest.approx(10.0)


def test_an_answer_is_late_by_what_others_took_and_few_are_asked_twice() -> None:
    assert hedge_after_s([], 0.1) == pytest.approx(0.3)
    assert hedge_after_s([], 0.0) == 0.02
    assert hedge_after_s([0.1] * 19 + [9.0], 5.0) == pytest.approx(0.15)
    assert may_hedge(0, 0)
    assert not may_hedge(5, 2)
    assert may_hedge(20, 2)
    assert silent_after_s(0.02) == 1.0
    assert silent_after_s(0.5) == pytest.approx(5.0)


def test_answers_are_combined_and_the_one_apart_is_named() -> None:
    """Two say 0.9 : 0.1, one 0.1 : 0.9: a mean of 19/30, and a total variation of 0.8 from the median."""
    same, other = np.array([[0.9, 0.1]]), np.array([[0.1, 0.9]])
    combined = combine({"a": same, "b": same, "c": other}, "mean")
    assert combined.outputs[0, 0] == pytest.approx(19 / 30)
    assert combined.deviating == ("c",)
    assert combined.disagreement == pytest.approx(19 / 30 - 0.1)
    assert combine({"a": same, "b": same, "c": other}, "vote").outputs.tolist() == [0]
    assert combine({"a": same, "c": other}, "mean").deviating == (), "of two nobody knows which is wrong"


def test_logits_become_probabilities_before_they_are_combined() -> None:
    logits = np.log(np.array([[0.8, 0.2]])) + 5
    assert combine({"a": logits, "b": logits}, "mean").outputs[0] == pytest.approx([0.8, 0.2])
    with pytest.raises(InvalidArgumentError, match=r"\[n, classes\]"):
        combine({"a": np.ones((2, 3, 4)), "b": np.ones((2, 3, 4))}, "mean")


def test_inputs_that_fit_no_message_go_in_parts() -> None:
    inputs = np.zeros((7, 1024 * 1024), dtype=np.uint8)
    assert [len(part) for part in split_rows(inputs)] == [3, 3, 1]


def test_the_next_token_is_the_most_probable_or_repeatable_chance() -> None:
    logits = np.array([[0.0, 3.0, 1.0]])
    assert [sampler(0, 0)(logits) for _ in range(3)] == [1, 1, 1]
    one, same = sampler(1.0, 7), sampler(1.0, 7)
    drawn = [one(logits) for _ in range(50)]
    assert drawn == [same(logits) for _ in range(50)]
    assert len(set(drawn)) > 1


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "int64", "uint8", "bool"])
def test_an_array_comes_back_as_it_went(dtype: str) -> None:
    array = (np.arange(24).reshape(2, 3, 4) % 2).astype(dtype)
    back = array_of(message_of(array))
    assert back.dtype == array.dtype
    assert np.array_equal(back, array)


@pytest.mark.parametrize(
    ("message", "field"),
    [
        (Tensor(dtype="object", shape=[1], content=b"12345678"), "inputs.dtype"),
        (Tensor(dtype="float32", shape=[3], content=b"1234"), "inputs.content"),
        (Tensor(dtype="float32", shape=[1] * 9, content=b"1234"), "inputs.shape"),
    ],
)
def test_a_tensor_that_lies_is_refused_by_field(message: Tensor, field: str) -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        array_of(message)
    assert caught.value.metadata["field"] == field


def test_the_first_number_that_is_none_is_named() -> None:
    array = np.zeros((2, 3), dtype=np.float32)
    check_finite(array)
    array[1, 2] = np.inf
    with pytest.raises(InvalidArgumentError, match=r"inputs\[1, 2\] is inf"):
        check_finite(array)
    with pytest.raises(InvalidArgumentError, match="at most 3,145,728 bytes"):
        message_of(np.zeros(4 * 1024 * 1024, dtype=np.uint8))


def test_where_no_node_can_hold_the_model_another_way_is_left_or_the_error_stands() -> None:
    remote, split = RouteEstimate("remote", 0.1, "near"), RouteEstimate("split", 0.2, "two")
    large = ResourceExhaustedError("5 bytes are missing.", reason="MODEL_TOO_LARGE")
    left = after_refusal((remote, RouteEstimate("local", None, "no torch"), split), large)
    assert choose(left)[0] == "split"
    assert (left[0].seconds, left[0].reason) == (None, "5 bytes are missing.")
    for estimates, error in (
        ((remote, split), ResourceExhaustedError("the queue is full.")),
        ((remote, RouteEstimate("split", None, "one node")), large),
        ((), large),
    ):
        with pytest.raises(ResourceExhaustedError) as raised:
            after_refusal(estimates, error)
        assert raised.value is error


@pytest.mark.parametrize(("took_s", "held_s"), [(0.0, 0.25), (0.005, 0.25), (0.02, 1.0), (0.5, 2.0)])
def test_figures_that_took_long_to_find_hold_longer(took_s: float, held_s: float) -> None:
    """A client with a part of a core spent a third of its time on them."""
    assert holds_s(took_s) == pytest.approx(held_s)
