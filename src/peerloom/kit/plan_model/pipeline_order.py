"""In what order a stage of a pipeline makes its passes, and what it holds meanwhile: pure generators."""

from collections.abc import Iterator, Mapping
from enum import Enum
from types import MappingProxyType
from typing import NamedTuple

from peerloom.errors import InvalidArgumentError, nearest

GPIPE, ONE_F_ONE_B, ZB_H1, ZB_H2 = "gpipe", "1f1b", "zb-h1", "zb-h2"
PIPELINE_ORDERS: Mapping[str, str] = MappingProxyType(
    {
        ONE_F_ONE_B: "after the first forward passes a backward one follows each: few activations are held",
        GPIPE: "all forward passes, then all backward ones: all activations are held",
        ZB_H1: "as 1f1b, but the gradients of weights wait while others wait for those of activations",
        ZB_H2: "as zb-h1, with twice as many forward passes first: for ways that take as long as passes",
    }
)
# How far a stage is ahead, as a multiple of the stages from it to the end.
_DEPTHS: Mapping[str, int] = MappingProxyType({ONE_F_ONE_B: 1, ZB_H1: 1, ZB_H2: 2})


class PassKind(Enum):
    """What a pass computes: outputs, gradients that go back (or all of them), or those of weights."""

    FORWARD = "forward"
    BACKWARD = "backward"
    WEIGHTS = "weights"


class PipelinePass(NamedTuple):
    """A stage's pass over one micro-batch."""

    stage: int
    micro_batch: int
    kind: PassKind


def check_order(order: str) -> str:
    """`order`, if there is such a one; InvalidArgumentError with the nearest name if not."""
    if order not in PIPELINE_ORDERS:
        near = nearest(order, tuple(PIPELINE_ORDERS))
        hint = f", did you mean {near[0]}?" if near else ""
        raise InvalidArgumentError.of_field("order", order, f"one of {', '.join(PIPELINE_ORDERS)}{hint}")
    return order


def is_split(order: str) -> bool:
    """Whether a backward pass leaves the gradients of weights to a pass of their own."""
    return order in (ZB_H1, ZB_H2)


def passes_of(order: str, stage: int, stages: int, micro_batches: int) -> Iterator[PipelinePass]:
    """All passes of `stage`, counted from 0, one after the other; micro-batches stay in their order.

    GPipe: Huang et al., NeurIPS 2019. 1F1B with a flush after each step: Narayanan et al., SC 2021; stage i
    of K begins with K - i forward passes. ZB-H1 and ZB-H2: Qi et al., ICLR 2024, with a flush after each
    step; stage i begins with K - i or 2 (K - i) - 1 forward passes, and the gradients of its weights are i or
    2 i micro-batches behind. Raises InvalidArgumentError.
    """
    check_order(order)
    if not 0 <= stage < stages:
        raise InvalidArgumentError.of_field("stage", stage, f"from 0 to {stages - 1}")
    if micro_batches < 1:
        raise InvalidArgumentError.of_field("micro_batches", micro_batches, "at least 1")
    ahead = _ahead(order, stage, stages, micro_batches)
    behind = _DEPTHS[order] * stage if is_split(order) else micro_batches
    for number in range(ahead):
        yield PipelinePass(stage, number, PassKind.FORWARD)
    for number in range(micro_batches):
        yield PipelinePass(stage, number, PassKind.BACKWARD)
        if number >= behind:
            yield PipelinePass(stage, number - behind, PassKind.WEIGHTS)
        if number + ahead < micro_batches:
            yield PipelinePass(stage, number + ahead, PassKind.FORWARD)
    if is_split(order):
        for number in range(max(0, micro_batches - behind), micro_batches):
            yield PipelinePass(stage, number, PassKind.WEIGHTS)


def held_micro_batches(order: str, stage: int, stages: int, micro_batches: int) -> int:
    """Of how many micro-batches at most a stage holds activations at once."""
    behind = _DEPTHS[order] * stage if is_split(order) else 0
    return min(micro_batches, _ahead(order, stage, stages, micro_batches) + behind)


def _ahead(order: str, stage: int, stages: int, micro_batches: int) -> int:
    """Forward passes before the first backward one."""
    if order == GPIPE:
        return micro_batches
    depth = _DEPTHS[order]
    return min(micro_batches, depth * (stages - stage) - (depth - 1))
