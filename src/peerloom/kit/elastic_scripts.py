"""A job whose task is a script with an elastic loop: how script and arguments stand in its spec."""

import json
from collections.abc import Mapping, Sequence

SCRIPT_TASK = "peerloom.worker.elastic.script_task:ScriptTask"
_SCRIPT, _ARGUMENTS = "script", "arguments"
METRICS_MOST, METRIC_NAME_LONGEST = 32, 63  # that a script logs of a step


def is_script(task: str) -> bool:
    """Whether what a user wants trained is a script: a path that ends in .py."""
    return task.endswith(".py")


def task_arguments_of(script: str, arguments: Sequence[str]) -> dict[str, str]:
    """The task's arguments for the path of a `script` in the job's code, and its own arguments."""
    return {_SCRIPT: script, _ARGUMENTS: json.dumps(list(arguments))}


def script_and_arguments(task_arguments: Mapping[str, str]) -> tuple[str, list[str]]:
    """What `task_arguments_of` was given. Raises KeyError or ValueError for arguments that it didn't make."""
    arguments = json.loads(task_arguments[_ARGUMENTS])
    if not isinstance(arguments, list) or not all(isinstance(each, str) for each in arguments):
        raise ValueError(f"{_ARGUMENTS} is no list of texts")
    return task_arguments[_SCRIPT], arguments
