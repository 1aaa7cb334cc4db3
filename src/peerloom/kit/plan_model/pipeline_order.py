"""In what order a stage of a pipeline makes its passes, and what it holds meanwhile: pure generators."""

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import NamedTuple

from peerloom.errors import InvalidArgumentError, nearest

GPIPE, ONE_F_ONE_B = "gpipe", "1f1b"
PIPELINE_ORDERS: Mapping[str, str] = MappingProxyType(
    {
        ONE_F_ONE_B: "after the first forward passes a backward one follows each: few activations are held",
        GPIPE: "all forward passes, then all backward ones: all activations are held",
    }
)


class PipelinePass(NamedTuple):
    """A stage's pass over one micro-batch."""

    stage: int
    micro_batch: int
    is_forward: bool


def check_order(order: str) -> str:
    """`order`, if there is such a one; InvalidArgumentError with the nearest name if not."""
    if order not in PIPELINE_ORDERS:
        near = nearest(order, tuple(PIPELINE_ORDERS))
        hint = f", did you mean {near[0]}?" if near else ""
        raise InvalidArgumentError.of_field("order", order, f"one of {', '.join(PIPELINE_ORDERS)}{hint}")
    return order


def passes_of(order: str, stage: int, stages: int, micro_batches: int) -> Iterator[PipelinePass]:
    """All passes of `stage`, counted from 0, one after the other; micro-batches stay in their order.

    GPipe: Huang et al., NeurIPS 2019. 1F1B with a flush after each step: Narayanan et al., SC 2021; stage i
    of K begins with K - i forward passes. Raises InvalidArgumentError.
    """
    check_order(order)
    if not 0 <= stage < stages:
        raise InvalidArgumentError.of_field("stage", stage, f"from 0 to {stages - 1}")
    if micro_batches < 1:
        raise InvalidArgumentError.of_field("micro_batches", micro_batches, "at least 1")
    ahead = held_micro_batches(order, stage, stages, micro_batches)
    for number in range(ahead):
        yield PipelinePass(stage, number, is_forward=True)
    for number in range(micro_batches):
        yield PipelinePass(stage, number, is_forward=False)
        if number + ahead < micro_batches:
            yield PipelinePass(stage, number + ahead, is_forward=True)


def held_micro_batches(order: str, stage: int, stages: int, micro_batches: int) -> int:
    """Of how many micro-batches at most a stage holds activations at once."""
    return micro_batches if order == GPIPE else min(micro_batches, stages - stage)
