"""What a job's workers need besides slots: a task with arguments, and artifacts before they start."""

from peerloom.errors import InvalidArgumentError
from peerloom.kit.checks import check_digest, check_range, check_text
from peerloom.kit.limits import MAX_SCRIPT_RESTARTS
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
    if named.HasField("script"):
        _check_script(field, named)


def _check_script(field: str, named: JobSpec | Work) -> None:
    """Raises InvalidArgumentError for what can't be the path of a script in a bundle, or its arguments."""
    path, script = named.task, named.script
    if not path.endswith(".py") or path.startswith("/") or {"", "..", "."} & set(path.split("/")):
        limit = "the path of a script in the code, ending in .py"
        raise InvalidArgumentError.of_field(f"{field}.task", path, limit)
    if not named.code_digest:
        raise InvalidArgumentError.of_field(
            f"{field}.code_digest", "", "the digest of a bundle with the script"
        )
    check_range(f"{field}.script.arguments (entries)", len(script.arguments), 0, 256)
    for argument in script.arguments:
        check_text(f"{field}.script.arguments", argument, high=4096)
        if "\0" in argument:
            raise InvalidArgumentError.of_field(
                f"{field}.script.arguments", argument, "without a NUL character"
            )
    if script.HasField("max_restarts"):
        check_range(f"{field}.script.max_restarts", script.max_restarts, 0, MAX_SCRIPT_RESTARTS)
