"""What a user asks for, as messages; what can't be sent is refused here, by the names the user knows."""

import asyncio
import math
import re
import shutil
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from peerloom.client.artifacts import AsyncArtifacts
from peerloom.client.conversions.words import number_of
from peerloom.client.types import JobSpec, ScriptSpec
from peerloom.errors import InvalidArgumentError
from peerloom.kit.checks import check_range
from peerloom.kit.elastic_scripts import SCRIPT_TASK, is_script, task_arguments_of
from peerloom.kit.job_inputs import PREFIX, digest_in
from peerloom.kit.limits import MAX_BATCH_SIZE, MAX_EPOCHS, MAX_SCRIPT_RESTARTS, MAX_SLOTS
from peerloom.kit.parallel_plan import asked_plan
from peerloom.kit.robust_rules import check_robust
from peerloom.kit.sync_auto import asked_sync
from peerloom.v1 import common_pb2, registry_pb2, selector_pb2, trainer_pb2

_UINT32_MAX = 2**32 - 1
_LIMITS: dict[str, tuple[int, int]] = {
    "requests": (1, 1000),
    "epochs": (1, MAX_EPOCHS),
    "batch_size": (1, MAX_BATCH_SIZE),
    "min_workers": (1, _UINT32_MAX),
    "max_workers": (1, _UINT32_MAX),
    "max_restarts": (0, MAX_SCRIPT_RESTARTS),
    "min_slots": (0, MAX_SLOTS),
    "seed": (0, 2**64 - 1),
}


async def job_spec(asked: JobSpec, artifacts: AsyncArtifacts) -> trainer_pb2.JobSpec:
    """The message of `Client.train`'s arguments; a folder of code is put in, digests are completed.

    Raises InvalidArgumentError naming the argument, and NotFoundError with the nearest digests.
    """
    check_spec(asked)
    task, arguments, code = await _what_is_trained(asked, artifacts)
    return trainer_pb2.JobSpec(
        task=task,
        task_arguments=arguments,
        epochs=asked.epochs,
        batch_size=asked.batch_size,
        learning_rate=asked.learning_rate,
        request_budget=asked.requests,
        policy=asked.policy,
        requirements=_requirements(asked),
        min_workers=asked.min_workers,
        max_workers=asked.max_workers,
        backend=number_of("backend", trainer_pb2.Backend, asked.backend, {"auto": 0}),
        seed=asked.seed,
        initial_model_digest=asked.initial_model,
        code_digest=code,
        name=asked.name or (name_of_script(asked.task) if is_script(asked.task) else ""),
        equal_shares=asked.equal_shares,
        robust=asked.robust,
        sync=asked.sync,
        plan=asked.plan,
    )


async def _what_is_trained(asked: JobSpec, artifacts: AsyncArtifacts) -> tuple[str, dict[str, str], str]:
    """Task, its arguments, and the digest of its code."""
    if not is_script(asked.task):
        if asked.script_arguments:
            limit = "left out: they belong to a script, and the task is none"
            raise InvalidArgumentError.of_field("script_arguments", list(asked.script_arguments), limit)
        arguments = await resolved_arguments(artifacts, asked.arguments or {})
        return asked.task, arguments, await code_digest(artifacts, asked.code)
    for field in ("epochs", "batch_size", "learning_rate", "arguments"):
        if value := getattr(asked, field):
            limit = "left to the script: give it script_arguments, which it finds in sys.argv"
            raise InvalidArgumentError.of_field(field, value, limit)
    code, path = await put_script(artifacts, asked.task, asked.code)
    return SCRIPT_TASK, task_arguments_of(path, checked_arguments(asked.script_arguments)), code


async def script_spec(asked: ScriptSpec, artifacts: AsyncArtifacts) -> trainer_pb2.JobSpec:
    """The message of `Client.run_script`'s arguments; the script is put in, with its folder of code if any.

    Raises InvalidArgumentError naming the argument, and NotFoundError with the nearest digests.
    """
    check_limits(asked)
    checked_arguments(asked.script_arguments)
    code, path = await put_script(artifacts, asked.script, asked.code)
    return trainer_pb2.JobSpec(
        task=path,
        code_digest=code,
        script=common_pb2.Script(arguments=asked.script_arguments, max_restarts=asked.max_restarts),
        request_budget=asked.requests,
        policy=asked.policy,
        requirements=_requirements(asked),
        min_workers=asked.min_workers,
        max_workers=asked.max_workers,
        name=asked.name,
    )


def _requirements(asked: JobSpec | ScriptSpec) -> selector_pb2.Requirements:
    return selector_pb2.Requirements(
        min_slots=asked.min_slots, accelerator_kind=asked.accelerator, labels=asked.labels or {}
    )


def checked_arguments(arguments: Sequence[str]) -> Sequence[str]:
    """A script's arguments as they are. Raises InvalidArgumentError for one that no message can carry."""
    for argument in arguments:
        if any("\ud800" <= character <= "\udfff" for character in argument):  # bytes of no encoding
            raise InvalidArgumentError.of_field("script_arguments", ascii(argument), "text, not bytes")
    return arguments


def name_of_script(path: str) -> str:
    """A name for a script's job, made of the script's own; empty where nothing is left of that."""
    return re.sub("[^a-z0-9]+", "-", Path(path).stem.lower())[:63].strip("-")


def check_limits(asked: JobSpec | ScriptSpec) -> None:
    """Raises InvalidArgumentError naming the number that is outside its limits."""
    for field, (low, high) in _LIMITS.items():
        value = getattr(asked, field, None)
        if value is not None:
            check_range(field, value, low, high)


def check_spec(asked: JobSpec) -> None:
    """Raises InvalidArgumentError naming the argument that is outside its limits."""
    check_limits(asked)
    if asked.learning_rate is not None and not 0 < asked.learning_rate < math.inf:
        raise InvalidArgumentError.of_field("learning_rate", asked.learning_rate, "above 0 and finite")
    number_of("backend", trainer_pb2.Backend, asked.backend, {"auto": 0})
    check_robust("robust", asked.robust)
    asked_sync("sync", asked.sync, asked.robust, asked.backend)
    asked_plan("plan", asked.plan)


async def code_digest(artifacts: AsyncArtifacts, code: str | Path) -> str:
    """The digest of a folder of modules, put in now, or of a bundle that is there; empty for none.

    Raises NotFoundError with the nearest digests when it is neither.
    """
    if not str(code):
        return ""
    folder = await asyncio.to_thread(Path(code).expanduser)
    if await asyncio.to_thread(folder.is_dir):
        return (await artifacts.put(folder, kind="code")).digest
    return await artifacts.resolve(str(code))


async def put_script(artifacts: AsyncArtifacts, script: str | Path, code: str | Path) -> tuple[str, str]:
    """The digest of a bundle with the script, and its path there: the script alone, or its folder `code`.

    Raises InvalidArgumentError for a script that isn't there, in that folder, or Python by its name.
    """
    if not re.fullmatch(r"[^.].*\.py", Path(script).name):
        raise InvalidArgumentError.of_field("script", str(script), "a Python file, NAME.py")
    folder = await asyncio.to_thread(_folder_of_code, code)
    if str(code) and folder is None:
        return await artifacts.resolve(str(code)), Path(script).as_posix()
    path = await asyncio.to_thread(_path_below, script, folder)
    if folder is not None:
        return await code_digest(artifacts, folder), path.relative_to(folder).as_posix()
    with TemporaryDirectory(prefix="peerloom-") as alone:
        await asyncio.to_thread(shutil.copy, path, Path(alone) / path.name)
        return await code_digest(artifacts, alone), path.name


def _folder_of_code(code: str | Path) -> Path | None:
    folder = Path(code).expanduser()
    return folder.resolve() if str(code) and folder.is_dir() else None


def _path_below(script: str | Path, folder: Path | None) -> Path:
    path = Path(script).expanduser().resolve()
    if not path.is_file():
        raise InvalidArgumentError.of_field("script", str(script), "a file that exists")
    if folder is not None and not path.is_relative_to(folder):
        raise InvalidArgumentError.of_field("script", str(script), f"in the folder of code, {folder}")
    return path


async def resolved_arguments(artifacts: AsyncArtifacts, arguments: Mapping[str, str]) -> dict[str, str]:
    """The arguments, with whole digests behind each "artifact:". Raises NotFoundError."""
    resolved = dict(arguments)
    for name, value in arguments.items():
        if isinstance(value, str) and (beginning := digest_in(value)):
            resolved[name] = PREFIX + await artifacts.resolve(beginning)
    return resolved


def node_states(states: Iterable[str]) -> list[Any]:
    """Words like "alive" as numbers. Raises InvalidArgumentError with the nearest word."""
    return [number_of("states", registry_pb2.NodeState, state) for state in states]


def job_states(states: Iterable[str]) -> list[Any]:
    """Words like "running" as numbers. Raises InvalidArgumentError with the nearest word."""
    return [number_of("states", trainer_pb2.JobState, state) for state in states]
