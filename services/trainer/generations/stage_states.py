"""With which states the stages of a pipeline go on: pure, of what its workers say that they hold."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

HeldStates = Collection[tuple[int, int]]  # of stages, by number: steps that they contain


@dataclass(frozen=True)
class GoOn:
    """All stages go on from `step`; for each stage `sources` has the rank of who holds its state of then."""

    step: int
    sources: tuple[int, ...]
    reason: str


@dataclass(frozen=True)
class GoBack:
    """The living states are of no use; `reason` is empty where nobody kept any on purpose."""

    reason: str


def newest_states(held: Sequence[HeldStates], checkpoint_step: int | None = None) -> GoOn | GoBack:
    """The newest step of which somebody has every stage's state; `held` is by rank, which is the stage too.

    A stage's own worker comes before others that have the same state, and a newer checkpoint before all.
    """
    stages = range(len(held))
    if not any(held):
        return GoBack("")
    steps = [{step for states in held for number, step in states if number == stage} for stage in stages]
    for stage in stages:
        if not steps[stage]:
            where = "it was lost with the worker that kept its shadow"
            return GoBack(f"the state of stage {stage} is gone: {where}")
    common = set.intersection(*steps)
    if not common:
        told = ", ".join(f"{stage}: {max(steps[stage])}" for stage in stages)
        return GoBack(f"no step is left whose state all stages have; the newest are, by stage, {told}")
    step = max(common)
    if checkpoint_step is not None and checkpoint_step > step:
        return GoBack(f"the workers have no more than the states of step {step}")
    sources = tuple(_source(held, stage, step) for stage in stages)
    return GoOn(step, sources, _reason(step, sources))


def _source(held: Sequence[HeldStates], stage: int, step: int) -> int:
    holders = [rank for rank, states in enumerate(held) if (stage, step) in states]
    return stage if stage in holders else holders[0]


def _reason(step: int, sources: Sequence[int]) -> str:
    given = [f"{stage} by that of {rank}" for stage, rank in enumerate(sources) if rank != stage]
    copies = f"; stage {', '.join(given)}, which kept its shadow" if given else ""
    return f"from step {step}, with the living states{copies}"
