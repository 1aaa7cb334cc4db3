"""The agent accepts what fits and refuses the rest with the right reason."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from peerloom.services.node_agent.work_requests import (
    NodeView,
    WorkRequest,
    decide,
)
from peerloom.v1.node_agent_pb2 import Refusal
from peerloom.worker.assignment import Work

NODE = NodeView(
    total_slots=4,
    free_slots=3,
    accelerator_kind="cpu",
    device_memory_bytes=1000,
    available_bytes=800,
    waiting_bytes=0,
    promised_bytes=0,
    memory_limit_bytes=0,
    draining=False,
    withheld="",
    torch_installed=True,
    task_known=True,
    allow_code=False,
    foreign_paths={},
    trainer_doubt="",
)
WORK = Work(trainer_address="127.0.0.1:9", task="digits")
REQUEST = WorkRequest(job_id="job-1", max_slots=2, accelerator_kind="", memory_bytes=0, work=WORK)


@pytest.mark.parametrize(
    ("request_change", "node_change", "slots"),
    [
        ({}, {}, 2),
        ({"max_slots": 9}, {}, 3),
        ({"accelerator_kind": "cpu"}, {}, 2),
        ({"memory_bytes": 400}, {}, 2),
        ({"memory_bytes": 401}, {}, 1),
        ({"memory_bytes": 400}, {"waiting_bytes": 400}, 1),
        ({"memory_bytes": 400}, {"memory_limit_bytes": 1000, "promised_bytes": 600}, 1),
    ],
)
def test_as_many_slots_as_fit_are_given(
    request_change: dict[str, object], node_change: dict[str, object], slots: int
) -> None:
    decision = decide(replace(REQUEST, **request_change), replace(NODE, **node_change))  # type: ignore[arg-type]  # tables
    assert (decision.slots, decision.refusal) == (slots, Refusal.REFUSAL_UNSPECIFIED)
    assert "3 of 4 slots free, at most " in decision.reason


@pytest.mark.parametrize(
    ("request_change", "node_change", "refusal", "words"),
    [
        ({}, {"total_slots": 0, "free_slots": 0}, Refusal.REFUSAL_NO_COMPUTE, "stores and relays only"),
        ({}, {"torch_installed": False}, Refusal.REFUSAL_NO_COMPUTE, "PyTorch isn't installed"),
        ({"accelerator_kind": "cuda"}, {}, Refusal.REFUSAL_NO_ACCELERATOR, "wants cuda slots"),
        (
            {"work": replace(WORK, task="mine.nets:Net")},
            {"task_known": False},
            Refusal.REFUSAL_UNKNOWN_TASK,
            "can't import 'mine'",
        ),
        ({"memory_bytes": 1001}, {}, Refusal.REFUSAL_NO_MEMORY, "a slot has 1,000"),
        ({}, {"draining": True}, Refusal.REFUSAL_DRAINING, "drained"),
        ({}, {"withheld": "It is 08:00."}, Refusal.REFUSAL_OWNER_LIMITS, "It is 08:00."),
        ({}, {"free_slots": 0}, Refusal.REFUSAL_BUSY, "None of 4 slots is free"),
        ({"memory_bytes": 900}, {}, Refusal.REFUSAL_NO_MEMORY, "800 are free"),
        (
            {"memory_bytes": 500},
            {"memory_limit_bytes": 900, "promised_bytes": 600},
            Refusal.REFUSAL_OWNER_LIMITS,
            "lends 900 bytes",
        ),
    ],
)
def test_each_refusal_says_why(
    request_change: dict[str, object], node_change: dict[str, object], refusal: Refusal.ValueType, words: str
) -> None:
    decision = decide(replace(REQUEST, **request_change), replace(NODE, **node_change))  # type: ignore[arg-type]  # tables
    assert (decision.slots, decision.refusal) == (0, refusal)
    assert words in decision.reason


def test_what_never_changes_is_said_before_what_passes() -> None:
    """A busy node that could never run the task says that, so that nobody waits for it."""
    decision = decide(
        replace(REQUEST, work=replace(WORK, task="x:Y")), replace(NODE, task_known=False, free_slots=0)
    )
    assert decision.refusal == Refusal.REFUSAL_UNKNOWN_TASK


@given(
    max_slots=st.integers(1, 20),
    free=st.integers(0, 8),
    memory_bytes=st.integers(0, 2000),
    limit_bytes=st.integers(0, 5000),
    promised_bytes=st.integers(0, 5000),
)
def test_never_more_than_asked_free_or_allowed(
    max_slots: int, free: int, memory_bytes: int, limit_bytes: int, promised_bytes: int
) -> None:
    node = replace(
        NODE, total_slots=8, free_slots=free, memory_limit_bytes=limit_bytes, promised_bytes=promised_bytes
    )
    decision = decide(replace(REQUEST, max_slots=max_slots, memory_bytes=memory_bytes), node)
    assert 0 <= decision.slots <= min(max_slots, free)
    assert (decision.slots == 0) == (decision.refusal != Refusal.REFUSAL_UNSPECIFIED)
    assert decision.slots * memory_bytes <= node.available_bytes
    if limit_bytes and decision.slots and memory_bytes:
        assert promised_bytes + decision.slots * memory_bytes <= limit_bytes


def test_code_runs_where_the_owner_allows_it_and_only_there() -> None:
    """A digest of code is what brings code; without one the task has to be installed."""
    brings = replace(REQUEST, work=replace(WORK, task="sent:Along", code_digest="c" * 64))
    unknown = replace(NODE, task_known=False)
    assert decide(brings, unknown).refusal == Refusal.REFUSAL_OWNER_LIMITS
    assert "--allow-code" in decide(brings, unknown).reason
    assert decide(brings, replace(unknown, allow_code=True)).slots == 2
    installed = replace(brings, work=replace(brings.work, code_digest=""))
    assert decide(installed, replace(unknown, allow_code=True)).refusal == Refusal.REFUSAL_UNKNOWN_TASK


def test_a_trainer_in_doubt_gets_nothing_and_hears_why() -> None:
    decision = decide(REQUEST, replace(NODE, trainer_doubt="The registry lists no trainer at that address."))
    assert (decision.slots, decision.refusal) == (0, Refusal.REFUSAL_UNKNOWN_TRAINER)
    assert decision.reason == "The registry lists no trainer at that address."


def test_a_node_behind_nat_whose_gradients_would_be_plain_says_that_it_cannot_train() -> None:
    decision = decide(REQUEST, replace(NODE, plain_via="open"))
    assert (decision.slots, decision.refusal) == (0, Refusal.REFUSAL_NO_COMPUTE)
    assert "reach this node through open only" in decision.reason
    assert "--join TOKEN" in decision.reason


def test_files_that_the_owner_does_not_lend_are_refused_with_the_setting_that_would() -> None:
    decision = decide(REQUEST, replace(NODE, foreign_paths={"data": "/etc/shadow"}))
    assert (decision.slots, decision.refusal) == (0, Refusal.REFUSAL_OWNER_LIMITS)
    assert "'/etc/shadow' (argument data)" in decision.reason
    assert "--data-root" in decision.reason
