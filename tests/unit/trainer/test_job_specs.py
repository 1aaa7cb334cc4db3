"""What a job may ask for, and what the nodes' answers mean."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from peerloom.errors import InvalidArgumentError, NotFoundError
from peerloom.kit.elastic_scripts import SCRIPT_TASK
from peerloom.services.trainer.jobs.specs import (
    complete_spec,
    resumed_spec,
    slots_wanted,
)
from peerloom.services.trainer.nodes.offers import (
    Offer,
    choose_backend,
    counts_as_unfinished,
    take_slots,
    verdict,
)
from peerloom.v1.common_pb2 import Script
from peerloom.v1.node_agent_pb2 import Refusal
from peerloom.v1.selector_pb2 import Requirements
from peerloom.v1.trainer_pb2 import Backend, JobSpec


def test_fills_in_the_thesiss_defaults_for_mnist() -> None:
    spec = complete_spec(JobSpec(task="mnist", task_arguments={"data": "/data"}))
    assert (spec.batch_size, spec.epochs, spec.request_budget, spec.min_workers) == (32, 3, 3, 1)


def test_a_users_own_task_keeps_its_own_defaults_for_the_workers() -> None:
    spec = complete_spec(JobSpec(task="lines:Lines"))
    assert not spec.HasField("batch_size")
    assert spec.request_budget == 3


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        (JobSpec(task="digits", epochs=0), "spec.epochs"),
        (JobSpec(task="digits", batch_size=0), "spec.batch_size"),
        (JobSpec(task="digits", batch_size=4, min_workers=5), "spec.batch_size"),
        (JobSpec(task="digits", request_budget=0), "spec.request_budget"),
        (JobSpec(task="digits", learning_rate=-0.1), "spec.learning_rate"),
        (JobSpec(task="digits", learning_rate=float("nan")), "spec.learning_rate"),
        (JobSpec(task="digits", min_workers=3, max_workers=2), "spec.max_workers"),
        (JobSpec(task="digits", initial_model_digest="abc"), "spec.initial_model_digest"),
        (JobSpec(task="digits", name="No Spaces"), "spec.name"),
        (JobSpec(task=""), "spec.task"),
        (JobSpec(task="a:" + "B" * 300), "spec.task"),
        (JobSpec(task="digits", policy="p" * 129), "spec.policy"),
        (JobSpec(task="digits", max_workers=2**24 + 1), "spec.max_workers"),
        (
            JobSpec(task="a:B", task_arguments={str(n): "" for n in range(33)}),
            "spec.task_arguments (entries)",
        ),
        (JobSpec(task="a:B", task_arguments={"n" * 64: ""}), "spec.task_arguments key"),
        (JobSpec(task="a:B", task_arguments={"n": "v" * 4097}), "spec.task_arguments[n]"),
        (JobSpec(task="a:B", task_arguments={str(n): "v" * 4096 for n in range(17)}), "spec (bytes)"),
        (JobSpec.FromString(b"\xfa\x3f\x80\x80\x04" + b"x" * 2**16), "spec (bytes)"),
        (JobSpec(task="digits", requirements=Requirements(min_slots=1025)), "spec.requirements.min_slots"),
        (
            JobSpec(task="digits", requirements=Requirements(accelerator_kind="c" * 64)),
            "spec.requirements.accelerator_kind",
        ),
        (
            JobSpec(task="digits", requirements=Requirements(labels={str(n): "" for n in range(33)})),
            "spec.requirements.labels",
        ),
    ],
)
def test_a_bad_field_is_named_with_its_limit(spec: JobSpec, field: str) -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        complete_spec(spec)
    assert caught.value.metadata["field"] == field


def script(task: str = "train.py", code: str = "c" * 64, **spec: Any) -> JobSpec:
    """A script of a bundle."""
    arguments = spec.pop("arguments", [])
    restarts = spec.pop("max_restarts", None)
    given = Script(arguments=arguments, max_restarts=restarts)
    return JobSpec(task=task, code_digest=code, script=given, **spec)


def test_a_script_has_three_restarts_and_nothing_of_a_training() -> None:
    spec = complete_spec(script("sub/train.py", arguments=["--x", "é; $(rm)", ""]))
    assert (spec.script.max_restarts, spec.request_budget, spec.min_workers) == (3, 3, 1)
    assert list(spec.script.arguments) == ["--x", "é; $(rm)", ""]
    assert (spec.sync, spec.HasField("epochs")) == ("", False)
    assert complete_spec(script(max_restarts=0)).script.max_restarts == 0
    assert complete_spec(spec.__class__.FromString(script().SerializeToString())).task == "train.py"


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        (script("train"), "spec.task"),
        (script("/train.py"), "spec.task"),
        (script("../train.py"), "spec.task"),
        (script("a//train.py"), "spec.task"),
        (script("./train.py"), "spec.task"),
        (script(code=""), "spec.code_digest"),
        (script(arguments=["x"] * 257), "spec.script.arguments (entries)"),
        (script(arguments=["x" * 4097]), "spec.script.arguments"),
        (script(arguments=["a\0b"]), "spec.script.arguments"),
        (script(max_restarts=1001), "spec.script.max_restarts"),
        (script(epochs=1), "spec.epochs"),
        (script(seed=1), "spec.seed"),
        (script(robust="off"), "spec.robust"),
        (script(task_arguments={"a": "b"}), "spec.task_arguments"),
        (script(request_budget=0), "spec.request_budget"),
        (script(min_workers=3, max_workers=2), "spec.max_workers"),
    ],
)
def test_a_bad_field_of_a_script_is_named(spec: JobSpec, field: str) -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        complete_spec(spec)
    assert caught.value.metadata["field"] == field


def test_an_unknown_rule_for_gradients_is_told_the_known_ones() -> None:
    known = "off, auto, trimmed-mean, median, krum, centred-clipping"
    with pytest.raises(InvalidArgumentError, match=f"{known} .did you mean median") as caught:
        complete_spec(JobSpec(task="digits", robust="medium"))
    assert caught.value.metadata["field"] == "spec.robust"
    assert complete_spec(JobSpec(task="digits")).robust == "off"


def test_a_way_to_synchronise_is_kept_with_all_its_pairs() -> None:
    assert complete_spec(JobSpec(task="digits")).sync == "schedule=wfbp,topology=ring,codec=none"
    asked = JobSpec(task="digits", sync="codec=int8,schedule=bsp")
    assert complete_spec(asked).sync == "schedule=bsp,topology=direct,codec=int8"


@pytest.mark.parametrize(
    "spec",
    [
        JobSpec(task="digits", sync="codec=topk:2"),
        JobSpec(task="digits", sync="codec=int8", robust="auto"),
        JobSpec(task="digits", sync="topology=direct", backend=Backend.BACKEND_NCCL),
    ],
)
def test_a_way_to_synchronise_that_cannot_work_is_refused(spec: JobSpec) -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        complete_spec(spec)
    assert caught.value.metadata["field"] == "spec.sync"


def test_a_pipeline_has_as_many_workers_as_stages_and_asks_as_many_nodes() -> None:
    spec = complete_spec(JobSpec(task="digits", plan="pipeline=4"))
    assert spec.plan == "pipeline=4,micro_batches=16"
    assert (spec.min_workers, spec.max_workers, spec.request_budget, slots_wanted(spec)) == (4, 4, 4, 4)
    assert spec.backend == Backend.BACKEND_GLOO, "on GPUs too: stages send by way of the processor"
    asked = complete_spec(JobSpec(task="digits", plan="pipeline=2", request_budget=7, min_workers=2))
    assert (asked.request_budget, asked.max_workers) == (7, 2)
    assert complete_spec(JobSpec(task="digits")).plan == "data"


def test_a_pipeline_of_wide_stages_has_as_many_workers_as_its_widths_add_up_to() -> None:
    wide = "pipeline=2,widths=3/1"
    spec = complete_spec(JobSpec(task="digits", plan=wide))
    assert spec.plan == f"{wide},micro_batches=16"
    assert (spec.min_workers, spec.max_workers, spec.request_budget) == (4, 4, 4)
    with pytest.raises(
        InvalidArgumentError, match="at least 4, the workers of the pipeline's 2 stages together"
    ):
        complete_spec(JobSpec(task="digits", plan=wide, max_workers=3))
    narrow = complete_spec(JobSpec(task="digits", plan="pipeline=2"))
    cut = resumed_spec(narrow, wide)
    assert (cut.min_workers, cut.max_workers, cut.request_budget) == (4, 4, 4)
    assert resumed_spec(cut, "pipeline=2").max_workers == 2


@pytest.mark.parametrize(
    ("asked", "field"),
    [
        ({"plan": "pipline=2"}, "spec.plan"),
        ({"min_workers": 1}, "spec.min_workers"),
        ({"max_workers": 1}, "spec.max_workers"),
        ({"sync": "codec=int8"}, "spec.sync"),
        ({"robust": "auto"}, "spec.robust"),
        ({"equal_shares": True}, "spec.equal_shares"),
        ({"backend": Backend.BACKEND_NCCL}, "spec.backend"),
        ({"batch_size": 1}, "spec.batch_size"),
        ({"task": SCRIPT_TASK, "code_digest": "a" * 64}, "spec.plan"),
    ],
)
def test_what_makes_no_sense_with_a_pipeline_is_named(asked: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        complete_spec(JobSpec(**{"task": "digits", "plan": "pipeline=2", **asked}))
    assert caught.value.metadata["field"] == field


def test_fields_of_another_schema_are_not_kept() -> None:
    spec = JobSpec.FromString(JobSpec(task="digits").SerializeToString() + b"\xfa\x3f\x03abc")
    assert complete_spec(spec) == complete_spec(JobSpec(task="digits"))


def test_any_seed_of_64_bits_is_taken() -> None:
    assert complete_spec(JobSpec(task="digits", seed=2**64 - 1)).seed == 2**64 - 1


def test_an_unknown_task_is_told_the_nearest() -> None:
    with pytest.raises(NotFoundError, match="digits"):
        complete_spec(JobSpec(task="digit"))


def test_no_more_workers_than_samples_in_a_batch() -> None:
    assert slots_wanted(complete_spec(JobSpec(task="digits", batch_size=4))) == 4
    assert slots_wanted(complete_spec(JobSpec(task="digits", batch_size=4, max_workers=2))) == 2


def test_slots_are_taken_in_the_order_of_the_ranking() -> None:
    offers = [Offer("a", 3, "cpu"), Offer("b", 0, ""), Offer("c", 2, "cpu")]
    assert take_slots(offers, 4) == [3, 0, 1]


@given(st.lists(st.integers(0, 8), max_size=8), st.integers(0, 40))
def test_never_takes_more_than_offered_or_wanted(slots: list[int], wanted: int) -> None:
    taken = take_slots([Offer(str(i), n, "cpu") for i, n in enumerate(slots)], wanted)
    assert all(use <= offered for use, offered in zip(taken, slots, strict=True))
    assert sum(taken) == min(wanted, sum(slots))


@pytest.mark.parametrize(
    ("requested", "kinds", "expected"),
    [
        (Backend.BACKEND_UNSPECIFIED, ["cuda", "cuda"], Backend.BACKEND_NCCL),
        (Backend.BACKEND_UNSPECIFIED, ["cuda", "cpu"], Backend.BACKEND_GLOO),
        (Backend.BACKEND_UNSPECIFIED, ["cpu"], Backend.BACKEND_GLOO),
        (Backend.BACKEND_GLOO, ["cuda"], Backend.BACKEND_GLOO),
    ],
)
def test_nccl_where_every_slot_is_a_gpu(requested: int, kinds: list[str], expected: int) -> None:
    assert choose_backend(requested, kinds)[0] == expected


def test_what_nccl_was_never_run_with_gets_gloo_on_gpus_too() -> None:
    assert choose_backend(0, ["cuda", "cuda"], "not with NCCL") == (Backend.BACKEND_GLOO, "not with NCCL")


def test_a_round_without_compute_says_so() -> None:
    spec = complete_spec(JobSpec(task="digits", min_workers=2))
    assert verdict(0, spec, 3) == (False, "none of 3 nodes asked could give a slot")
    assert verdict(1, spec, 3) == (False, "1 slot given, and the job needs at least 2 workers")
    assert verdict(2, spec, 3)[0]


def test_only_refusals_for_lack_of_means_are_evidence() -> None:
    assert counts_as_unfinished(Refusal.REFUSAL_NO_COMPUTE)
    assert counts_as_unfinished(Refusal.REFUSAL_BUSY)
    assert not counts_as_unfinished(Refusal.REFUSAL_DRAINING)
    assert not counts_as_unfinished(Refusal.REFUSAL_OWNER_LIMITS)
    assert not counts_as_unfinished(Refusal.REFUSAL_UNKNOWN_TASK)


def test_a_plan_that_is_left_to_the_trainer_may_be_a_pipeline() -> None:
    spec = complete_spec(JobSpec(task="digits", plan="auto"))
    assert (spec.plan, spec.backend, spec.min_workers) == ("auto", Backend.BACKEND_GLOO, 1)
    assert slots_wanted(JobSpec(plan="auto")) == 64
    for more, limit in (
        ({"robust": "auto"}, "with plan auto, which may be a pipeline"),
        ({"equal_shares": True}, "unset with plan auto"),
        ({"backend": Backend.BACKEND_NCCL}, "gloo or unspecified"),
        ({"max_workers": 65}, "at most 64 with plan auto"),
        ({"sync": "diloco"}, "a pipeline has no rounds"),
    ):
        with pytest.raises(InvalidArgumentError, match=limit):
            complete_spec(JobSpec(task="digits", plan="auto", **more))  # type: ignore[arg-type]
    assert complete_spec(JobSpec(task="digits", plan="auto", sync="auto")).sync.startswith("auto")


def test_a_job_goes_on_under_another_plan_without_what_belonged_to_the_old_one() -> None:
    data = complete_spec(JobSpec(task="digits", min_workers=2))
    cut = resumed_spec(data, "pipeline=4")
    assert (cut.plan, cut.min_workers, cut.max_workers, cut.request_budget) == (
        "pipeline=4,micro_batches=16",
        4,
        4,
        4,
    )
    back = resumed_spec(cut, "data")
    assert (back.plan, back.min_workers, back.HasField("max_workers")) == ("data", 1, False)
    spare = complete_spec(JobSpec(task="digits", plan="pipeline=2", max_workers=3))
    assert resumed_spec(spare, "auto").max_workers == 3, "the user's own word stays"
    assert resumed_spec(spare, "pipeline=3").max_workers == 3
    with pytest.raises(InvalidArgumentError, match="sync"):
        resumed_spec(complete_spec(JobSpec(task="digits", sync="diloco")), "pipeline=2")
    with pytest.raises(InvalidArgumentError, match="pipeline=K"):
        resumed_spec(data, "pipline=2")


def test_a_job_whose_method_in_use_has_rounds_goes_on_as_data_parallel_only() -> None:
    chosen = complete_spec(JobSpec(task="digits", sync="auto,quality=relaxed"))
    for plan in ("auto", "pipeline=2"):
        with pytest.raises(
            InvalidArgumentError, match=r"data for a job in rounds of local steps \(local-sgd\)"
        ):
            resumed_spec(chosen, plan, "local-sgd")
    assert resumed_spec(chosen, "data", "local-sgd").plan == "data"
    assert resumed_spec(chosen, "auto", "topology=direct").plan == "auto"
