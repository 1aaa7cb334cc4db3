"""With which states the stages of a pipeline go on: pure, of what its workers say that they hold."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from peerloom.kit.stage_ranks import StageRanks

HeldStates = Collection[tuple[int, int]]  # of stages, by number: steps that they contain


@dataclass(frozen=True)
class GoOn:
    """All go on from `step`; for each rank `sources` has the rank of who holds its stage's state of then."""

    step: int
    sources: tuple[int, ...]
    reason: str


@dataclass(frozen=True)
class GoBack:
    """The living states are of no use; `reason` is empty where nobody kept any on purpose."""

    reason: str


def newest_states(
    held: Sequence[HeldStates], ranks: StageRanks, checkpoint_step: int | None = None
) -> GoOn | GoBack:
    """The newest step of which somebody has every stage's state; `held` is by rank.

    A rank's own state comes before that of others, its companions' in the stage before shadows, and a newer
    checkpoint before all.
    """
    stages = range(ranks.stages)
    if not any(held):
        return GoBack("")
    steps = [{step for states in held for number, step in states if number == stage} for stage in stages]
    for stage in stages:
        if not steps[stage]:
            where = "it was lost with the worker that kept its shadow"
            if ranks.widths[stage] > 1:
                where = f"all {ranks.widths[stage]} of its workers were lost"
            return GoBack(f"the state of stage {stage} is gone: {where}")
    common = set.intersection(*steps)
    if not common:
        told = ", ".join(f"{stage}: {max(steps[stage])}" for stage in stages)
        return GoBack(f"no step is left whose state all stages have; the newest are, by stage, {told}")
    step = max(common)
    if checkpoint_step is not None and checkpoint_step > step:
        return GoBack(f"the workers have no more than the states of step {step}")
    sources = tuple(_source(held, ranks, rank, step) for rank in range(ranks.workers))
    return GoOn(step, sources, _reason(step, sources, ranks))


def _source(held: Sequence[HeldStates], ranks: StageRanks, rank: int, step: int) -> int:
    stage = ranks.stage_of(rank)
    holders = [other for other, states in enumerate(held) if (stage, step) in states]
    return min(holders, key=lambda other: (other != rank, other not in ranks.of_stage(stage), other))


def _reason(step: int, sources: Sequence[int], ranks: StageRanks) -> str:
    given = [(ranks.stage_of(rank), source) for rank, source in enumerate(sources) if source != rank]
    shadows = [f"{s} by that of {source}" for s, source in given if ranks.stage_of(source) != s]
    companions = [f"{s} has that of {source}" for s, source in given if ranks.stage_of(source) == s]
    copies = f"; stage {', '.join(shadows)}, which kept its shadow" if shadows else ""
    taken = f"; a worker of stage {', '.join(companions)}, its companion" if companions else ""
    return f"from step {step}, with the living states{copies}{taken}"
