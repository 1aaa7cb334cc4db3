"""Where a model is cut, and which node computes which part: a pure function of measured figures.

A pipeline is as fast as its slowest stage, so the cut is the one whose slowest stage takes the least time,
among those that fit into the nodes' memory; found exactly, by dynamic programming over (layers placed, nodes
used), in the order in which the nodes are given.
"""

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass

from peerloom.errors import InvalidArgumentError, ResourceExhaustedError
from peerloom.kit.quantity_texts import plural, shown_s


@dataclass(frozen=True)
class LayerCost:
    """A layer's parameters in bytes, and its seconds for one sample on a node of speed 1."""

    parameter_bytes: int
    seconds: float


@dataclass(frozen=True)
class StageNode:
    """A node that can take a stage: bytes left for models, and its speed, 1 for that of the measured one."""

    name: str
    memory_bytes: int
    speed: float


@dataclass(frozen=True)
class Stage:
    """Layers `first` to `end`, one past the last, on a node, and its seconds for one sample."""

    node: str
    first: int
    end: int
    seconds: float


@functools.lru_cache(64)
def cut(
    layers: tuple[LayerCost, ...], nodes: tuple[StageNode, ...], stages: int = 0
) -> tuple[tuple[Stage, ...], str]:
    """The stages in order, and why they are these. `stages` 0: as many as make it fastest.

    Raises InvalidArgumentError for more stages than layers or nodes, ResourceExhaustedError, saying how
    much is missing, when no set of the nodes holds the model.
    """
    _check(layers, nodes, stages)
    plans = _plans(layers, nodes, stages or min(len(layers), len(nodes)))
    found = [plan for count, plan in plans.items() if stages in (0, count)]
    if not found:
        raise _too_large(layers, nodes, stages)
    best = min(found, key=lambda plan: (max(stage.seconds for stage in plan), len(plan)))
    slowest = max(best, key=lambda stage: stage.seconds)
    total = sum(layer.parameter_bytes for layer in layers)
    reason = (
        f"{len(layers)} layers of {total:,} bytes cut into {len(best)}: the slowest stage, layers "
        f"{slowest.first} to {slowest.end - 1} on {slowest.node}, takes {shown_s(slowest.seconds)} each"
    )
    return best, reason


def _plans(
    layers: Sequence[LayerCost], nodes: Sequence[StageNode], most: int
) -> dict[int, tuple[Stage, ...]]:
    """By number of stages, up to `most`: the plan with the least slowest stage, where memory allows any."""
    bytes_before, seconds_before = [0], [0.0]
    for layer in layers:
        bytes_before.append(bytes_before[-1] + layer.parameter_bytes)
        seconds_before.append(seconds_before[-1] + layer.seconds)
    # slowest[placed][used] over the first nodes considered: (time of the slowest stage, plan).
    start: dict[tuple[int, int], tuple[float, tuple[Stage, ...]]] = {(0, 0): (0.0, ())}
    for node in nodes:
        following = dict(start)  # the node may be left out
        for (placed, used), (slowest, plan) in start.items():
            if used == most:
                continue
            for end in range(placed + 1, len(layers) + 1):
                if bytes_before[end] - bytes_before[placed] > node.memory_bytes:
                    break
                seconds = (seconds_before[end] - seconds_before[placed]) / node.speed
                worst = max(slowest, seconds)
                if worst < following.get((end, used + 1), (math.inf, ()))[0]:
                    following[end, used + 1] = (worst, (*plan, Stage(node.name, placed, end, seconds)))
        start = following
    return {used: plan for (placed, used), (_, plan) in start.items() if placed == len(layers)}


def _check(layers: Sequence[LayerCost], nodes: Sequence[StageNode], stages: int) -> None:
    if not 0 <= stages <= len(layers):
        limit = f"from 1 to {len(layers)}, the model's number of layers (0: chosen for you)"
        raise InvalidArgumentError.of_field("stages", stages, limit)
    if stages > len(nodes):
        limit = f"at most {len(nodes)}, the number of nodes that can take a stage"
        raise InvalidArgumentError.of_field("stages", stages, limit)


def _too_large(
    layers: Sequence[LayerCost], nodes: Sequence[StageNode], stages: int
) -> ResourceExhaustedError:
    total = sum(layer.parameter_bytes for layer in layers)
    most = sorted((node.memory_bytes for node in nodes), reverse=True)
    room = sum(most[: stages or len(most)])
    largest = max(layer.parameter_bytes for layer in layers)
    if total > room:
        text = f"{total - room:,} bytes are missing"
    elif largest > max(most, default=0):
        text = (
            f"its largest layer needs {largest:,} bytes, {largest - max(most, default=0):,} more than any has"
        )
    else:
        text = "no cut between its layers fits the memory of each"
    many = plural(stages or len(nodes), "node")
    return ResourceExhaustedError(
        f"The model of {total:,} bytes fits no set of {many} with {room:,} bytes lent to models: {text}.",
        reason="MODEL_TOO_LARGE",
        metadata={"missing_bytes": str(max(0, total - room))},
    )
