"""Who of a pipeline's workers keeps a shadow of which stage: pure, from the nodes that they run on."""

from collections.abc import Sequence

from peerloom.kit.stage_ranks import StageRanks


def shadow_holders(node_ids: Sequence[str], ranks: StageRanks) -> tuple[int, ...]:
    """For each stage the rank that has its state beside its own worker; `node_ids` are by rank.

    Each rank keeps one shadow at most: of the stage whose worker is so many ranks before it, as few as put
    most shadows on another node. A stage of several workers needs none: its second one has the state. Empty
    where no stage needs one.
    """
    narrow = [ranks.of_stage(stage)[0] for stage, width in enumerate(ranks.widths) if width == 1]
    if not narrow or ranks.workers < 2:
        return ()
    shifts = range(1, ranks.workers)
    shift = min(shifts, key=lambda each: (_beside(node_ids, narrow, each), each))
    return tuple(
        (ranks.of_stage(stage)[0] + shift) % ranks.workers if width == 1 else ranks.of_stage(stage)[1]
        for stage, width in enumerate(ranks.widths)
    )


def ward_of(rank: int, holders: Sequence[int], ranks: StageRanks) -> int | None:
    """The stage whose shadow a rank keeps, if any."""
    own = ranks.stage_of(rank)
    return next((stage for stage, holder in enumerate(holders) if holder == rank and stage != own), None)


def _beside(node_ids: Sequence[str], narrow: Sequence[int], shift: int) -> int:
    """How many shadows would lie on the node of their stage."""
    return sum(node_ids[rank] == node_ids[(rank + shift) % len(node_ids)] for rank in narrow)
