"""A plan: which layers go to which slots, and how a batch goes through them."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import NamedTuple

from peerloom.kit.parallel_plan import ParallelPlan
from peerloom.kit.stage_ranks import StageRanks

SINGLE, DATA, PIPELINE, HYBRID, SHARDED = "single", "data", "pipeline", "hybrid", "sharded"
PLAN_KINDS = {
    SINGLE: "one slot computes all",
    DATA: "each slot has the whole model, and its share of the samples",
    PIPELINE: "each slot has a part of the layers, and sees all samples",
    HYBRID: "stages of layers, some of them on several slots that take turns at micro-batches",
    SHARDED: "each slot holds a part of the layers, and computes its samples with all of them",
}


class PlanStage(NamedTuple):
    """Layers `first` to `end`, one past the last, on `slots`, by number, in rising order."""

    first: int
    end: int
    slots: tuple[int, ...]


@dataclass(frozen=True)
class PlacedPlan:
    """Stages in the order of their layers; a batch goes through in equal `micro_batches`, by `order`.

    Where it `is_sharded` a stage is what a slot holds, and each slot computes one of as many micro-batches.
    """

    stages: tuple[PlanStage, ...]
    micro_batches: int
    order: str
    is_sharded: bool = False

    @cached_property
    def kind(self) -> str:
        """One of PLAN_KINDS."""
        if self.is_sharded:
            return SHARDED
        if len(self.stages) == 1:
            return SINGLE if len(self.stages[0].slots) == 1 else DATA
        return PIPELINE if all(len(stage.slots) == 1 for stage in self.stages) else HYBRID

    @property
    def is_divided(self) -> bool:
        """Whether slots hold parts of the model."""
        return len(self.stages) > 1

    @cached_property
    def ranks(self) -> StageRanks:
        """Who takes turns in each stage: its slots, but in a plan of one stage these share the samples."""
        return ranks_of(tuple(len(stage.slots) for stage in self.stages))

    def as_job(self, starts: Sequence[int], *, shadow: bool) -> ParallelPlan:
        """As a job takes it, whose stages but the first begin at these of its layers."""
        stages, first_layers = len(self.stages), tuple(starts)
        if self.is_sharded:
            return ParallelPlan(stages, first_layers, stages, shadow=shadow, is_sharded=True)
        widths = self.ranks.widths if self.ranks.is_wide else ()
        return ParallelPlan(
            stages, first_layers, self.micro_batches, self.order, shadow=shadow, widths=widths
        )

    @property
    def slots(self) -> tuple[int, ...]:
        """Those in use, stage by stage."""
        return tuple(slot for stage in self.stages for slot in stage.slots)


@lru_cache(4096)
def ranks_of(widths: tuple[int, ...]) -> StageRanks:
    """Of stages of so many slots."""
    return StageRanks(widths if len(widths) > 1 else (1,))
