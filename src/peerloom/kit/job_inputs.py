"""Which artifacts a job needs on its nodes before its workers start."""

from peerloom.kit.checks import check_digest
from peerloom.v1.trainer_pb2 import JobSpec

PREFIX = "artifact:"


def digest_in(value: str) -> str:
    """The digest in a task argument artifact:DIGEST; empty for any other argument."""
    return value.removeprefix(PREFIX) if value.startswith(PREFIX) else ""


def inputs_of(spec: JobSpec) -> tuple[str, ...]:
    """The digests of a job's code, data and initial parameters, each once."""
    data = (digest_in(value) for _, value in sorted(spec.task_arguments.items()))
    return tuple(dict.fromkeys(one for one in (spec.code_digest, *data, spec.initial_model_digest) if one))


def check_inputs(spec: JobSpec) -> None:
    """Raises InvalidArgumentError naming the field that holds no digest."""
    if spec.initial_model_digest:
        check_digest("spec.initial_model_digest", spec.initial_model_digest)
    if spec.code_digest:
        check_digest("spec.code_digest", spec.code_digest)
    for name, value in spec.task_arguments.items():
        if value.startswith(PREFIX):
            check_digest(f"spec.task_arguments[{name}]", digest_in(value))
