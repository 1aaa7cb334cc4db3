"""What a user asks for, as messages; what can't be sent is refused here, by the names the user knows."""

import asyncio
import math
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from peerloom.client.artifacts import AsyncArtifacts
from peerloom.client.conversions.words import number_of
from peerloom.client.types import JobSpec
from peerloom.errors import InvalidArgumentError
from peerloom.kit.checks import check_range
from peerloom.kit.job_inputs import PREFIX, digest_in
from peerloom.kit.limits import MAX_BATCH_SIZE, MAX_EPOCHS, MAX_SLOTS
from peerloom.kit.robust_rules import check_robust
from peerloom.kit.sync_method import parse_sync
from peerloom.v1 import registry_pb2, selector_pb2, trainer_pb2

_UINT32_MAX = 2**32 - 1
_LIMITS: dict[str, tuple[int, int]] = {
    "requests": (1, 1000),
    "epochs": (1, MAX_EPOCHS),
    "batch_size": (1, MAX_BATCH_SIZE),
    "min_workers": (1, _UINT32_MAX),
    "max_workers": (1, _UINT32_MAX),
    "min_slots": (0, MAX_SLOTS),
    "seed": (0, 2**64 - 1),
}


async def job_spec(asked: JobSpec, artifacts: AsyncArtifacts) -> trainer_pb2.JobSpec:
    """The message of `Client.train`'s arguments; a folder of code is put in, digests are completed.

    Raises InvalidArgumentError naming the argument, and NotFoundError with the nearest digests.
    """
    check_spec(asked)
    return trainer_pb2.JobSpec(
        task=asked.task,
        task_arguments=await resolved_arguments(artifacts, asked.arguments or {}),
        epochs=asked.epochs,
        batch_size=asked.batch_size,
        learning_rate=asked.learning_rate,
        request_budget=asked.requests,
        policy=asked.policy,
        requirements=selector_pb2.Requirements(
            min_slots=asked.min_slots, accelerator_kind=asked.accelerator, labels=asked.labels or {}
        ),
        min_workers=asked.min_workers,
        max_workers=asked.max_workers,
        backend=number_of("backend", trainer_pb2.Backend, asked.backend, {"auto": 0}),
        seed=asked.seed,
        initial_model_digest=asked.initial_model,
        code_digest=await code_digest(artifacts, asked.code),
        name=asked.name,
        equal_shares=asked.equal_shares,
        robust=asked.robust,
        sync=asked.sync,
    )


def check_spec(asked: JobSpec) -> None:
    """Raises InvalidArgumentError naming the argument that is outside its limits."""
    for field, (low, high) in _LIMITS.items():
        value = getattr(asked, field)
        if value is not None:
            check_range(field, value, low, high)
    if asked.learning_rate is not None and not 0 < asked.learning_rate < math.inf:
        raise InvalidArgumentError.of_field("learning_rate", asked.learning_rate, "above 0 and finite")
    number_of("backend", trainer_pb2.Backend, asked.backend, {"auto": 0})
    check_robust("robust", asked.robust)
    parse_sync("sync", asked.sync, asked.robust, asked.backend)


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
