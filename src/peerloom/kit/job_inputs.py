"""What a job's workers need besides slots: a task with arguments, and artifacts before they start."""

from peerloom.kit.checks import check_digest, check_range, check_text
from peerloom.v1.node_agent_pb2 import Work
from peerloom.v1.trainer_pb2 import JobSpec

PREFIX = "artifact:"


def digest_in(value: str) -> str:
    """The digest in a task argument artifact:DIGEST; empty for any other argument."""
    return value.removeprefix(PREFIX) if value.startswith(PREFIX) else ""


def inputs_of(spec: JobSpec) -> tuple[str, ...]:
    """The digests of a job's code, data and initial parameters, each once."""
    data = (digest_in(value) for _, value in sorted(spec.task_arguments.items()))
    return tuple(dict.fromkeys(one for one in (spec.code_digest, *data, spec.initial_model_digest) if one))


def check_inputs(field: str, named: JobSpec | Work) -> None:
    """Raises InvalidArgumentError for more than 32 task arguments, one of over 4096 characters, or no digest.

    `field` is what the message calls the whole.
    """
    check_text(f"{field}.task", named.task, low=1, high=256)
    check_range(f"{field}.task_arguments (entries)", len(named.task_arguments), 0, 32)
    for name, value in named.task_arguments.items():
        check_text(f"{field}.task_arguments key", name, low=1, high=63)
        check_text(f"{field}.task_arguments[{name}]", value, high=4096)
        if value.startswith(PREFIX):
            check_digest(f"{field}.task_arguments[{name}]", digest_in(value))
    if named.initial_model_digest:
        check_digest(f"{field}.initial_model_digest", named.initial_model_digest)
    if named.code_digest:
        check_digest(f"{field}.code_digest", named.code_digest)
