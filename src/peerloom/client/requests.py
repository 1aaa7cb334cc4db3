"""What a user asks for, as messages; what can't be sent is refused here, by the names the user knows."""

import math
from collections.abc import Iterable, Mapping
from typing import Any

from peerloom.errors import InvalidArgumentError, nearest
from peerloom.kit.checks import check_range
from peerloom.v1 import registry_pb2, selector_pb2, trainer_pb2

_UINT32_MAX = 2**32 - 1
_LIMITS: dict[str, tuple[int, int]] = {
    "requests": (1, 1000),
    "epochs": (1, 1_000_000),
    "batch_size": (1, 16_777_216),
    "min_workers": (1, _UINT32_MAX),
    "max_workers": (1, _UINT32_MAX),
    "min_slots": (0, 1024),
    "seed": (0, 2**64 - 1),
}


def job_spec(
    task: str,
    *,
    requests: int | None,
    epochs: int | None,
    batch_size: int | None,
    learning_rate: float | None,
    policy: str,
    seed: int,
    min_workers: int | None,
    max_workers: int | None,
    backend: str,
    name: str,
    initial_model: str,
    code: str,
    min_slots: int,
    equal_shares: bool,
    accelerator: str,
    labels: Mapping[str, str] | None,
    arguments: Mapping[str, str] | None,
) -> trainer_pb2.JobSpec:
    """The message of `Client.train`'s arguments. Raises InvalidArgumentError naming the argument."""
    numbers = {
        "requests": requests,
        "epochs": epochs,
        "batch_size": batch_size,
        "min_workers": min_workers,
        "max_workers": max_workers,
        "min_slots": min_slots,
        "seed": seed,
    }
    for field, value in numbers.items():
        if value is not None:
            check_range(field, value, *_LIMITS[field])
    if learning_rate is not None and not 0 < learning_rate < math.inf:
        raise InvalidArgumentError.of_field("learning_rate", learning_rate, "above 0 and finite")
    return trainer_pb2.JobSpec(
        task=task,
        task_arguments=arguments or {},
        epochs=epochs,
        batch_size=batch_size,
        learning_rate=learning_rate,
        request_budget=requests,
        policy=policy,
        requirements=selector_pb2.Requirements(
            min_slots=min_slots, accelerator_kind=accelerator, labels=labels or {}
        ),
        min_workers=min_workers,
        max_workers=max_workers,
        backend=_number("backend", trainer_pb2.Backend, "BACKEND_", backend, {"auto": 0}),
        seed=seed,
        initial_model_digest=initial_model,
        code_digest=code,
        name=name,
        equal_shares=equal_shares,
    )


def node_states(states: Iterable[str]) -> list[Any]:
    """Words like "alive" as numbers. Raises InvalidArgumentError with the nearest word."""
    return [_number("states", registry_pb2.NodeState, "NODE_STATE_", state) for state in states]


def job_states(states: Iterable[str]) -> list[Any]:
    """Words like "running" as numbers. Raises InvalidArgumentError with the nearest word."""
    return [_number("states", trainer_pb2.JobState, "JOB_STATE_", state) for state in states]


def _number(field: str, enum: Any, prefix: str, word: str, extra: Mapping[str, int] | None = None) -> Any:
    known = {name.removeprefix(prefix).lower(): number for name, number in enum.items() if number}
    known |= extra or {}
    if word not in known:
        near = nearest(word, known)
        hint = f" (did you mean {near[0]}?)" if near else ""
        raise InvalidArgumentError.of_field(field, word, f"one of {', '.join(known)}{hint}")
    return known[word]
