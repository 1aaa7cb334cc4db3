"""A plan: which layers go to which slots, and how a batch goes through them."""

from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import NamedTuple

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

    @cached_property
    def ranks(self) -> StageRanks:
        """Who takes turns in each stage: its slots, but in a plan of one stage these share the samples."""
        return ranks_of(tuple(len(stage.slots) for stage in self.stages))

    @property
    def slots(self) -> tuple[int, ...]:
        """Those in use, stage by stage."""
        return tuple(slot for stage in self.stages for slot in stage.slots)


@lru_cache(4096)
def ranks_of(widths: tuple[int, ...]) -> StageRanks:
    """Of stages of so many slots."""
    return StageRanks(widths if len(widths) > 1 else (1,))
