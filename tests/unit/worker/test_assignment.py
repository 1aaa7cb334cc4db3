"""A worker does what its agent's owner agreed to, whatever a trainer wants of it."""

import json
from typing import Any

import pytest

from peerloom.v1.common_pb2 import Script
from peerloom.v1.trainer_pb2 import JobSpec
from peerloom.worker.assignment import Assignment, Work

AGREED: dict[str, Any] = {
    "task": "mnist",
    "task_arguments": {"data": "artifact:" + "d" * 64},
    "code_digest": "",
    "initial_model_digest": "e" * 64,
}
WORK = Work("127.0.0.1:7402", **AGREED)


def test_the_agreed_work_is_done_with_whatever_epochs_and_rates() -> None:
    assert WORK.why_not(JobSpec(**AGREED, epochs=3, learning_rate=0.5, batch_size=7)) == ""


@pytest.mark.parametrize(
    ("wanted", "name"),
    [
        ({"task": "evil:Task"}, "task 'evil:Task'"),
        ({"task_arguments": {"data": "/etc"}}, "task_arguments {'data': '/etc'}"),
        ({"task_arguments": {}}, "task_arguments {}"),
        ({"code_digest": "c" * 64}, f"code_digest '{'c' * 64}'"),
        ({"initial_model_digest": ""}, "initial_model_digest ''"),
    ],
)
def test_anything_else_is_refused_and_named(wanted: dict[str, Any], name: str) -> None:
    reason = WORK.why_not(JobSpec(**{**AGREED, **wanted}))
    assert reason.startswith(f"the trainer wants {name}, but the node agreed to ")


def test_an_assignment_comes_over_the_line_as_it_was() -> None:
    told = Assignment("worker-1", "job-1", WORK, "127.0.0.1:1", 0, "cpu", 0, "lo", 2, "/a/log", "5" * 64)
    line = told.to_json()
    assert Assignment.from_json(line) == told
    assert json.loads(line)["work"]["task"] == "mnist"


def test_a_script_is_agreed_to_with_its_arguments() -> None:
    agreed = Work("127.0.0.1:7402", "train.py", {}, "c" * 64, "", ["--epochs", "2"])
    told = Assignment("worker-1", "job-1", agreed, "127.0.0.1:1", 0, "cpu", 0, "lo", 2, "/a/log", "5" * 64)
    assert Assignment.from_json(told.to_json()).work == agreed
    wanted = JobSpec(task="train.py", code_digest="c" * 64, script=Script(arguments=["--epochs", "2"]))
    assert agreed.why_not(wanted) == ""
    for other in (Script(arguments=["--epochs", "9"]), None):
        refused = JobSpec(task="train.py", code_digest="c" * 64, script=other)
        assert agreed.why_not(refused).startswith("the trainer wants other script arguments")
    assert WORK.why_not(JobSpec(**AGREED, script=Script())).startswith("the trainer wants other script")
