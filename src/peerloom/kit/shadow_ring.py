"""Who of a pipeline's workers keeps a shadow of which stage: pure, from the nodes that they run on."""

from collections.abc import Sequence


def shadow_holders(node_ids: Sequence[str]) -> tuple[int, ...]:
    """For each stage, on the node of the same place in `node_ids`, the stage whose worker keeps its shadow.

    Each keeps one: that of the stage so many places before it, as few as put most shadows on another node.
    Empty for fewer than two stages.
    """
    stages = len(node_ids)
    if stages < 2:
        return ()
    shift = min(range(1, stages), key=lambda each: (_beside(node_ids, each), each))
    return tuple((stage + shift) % stages for stage in range(stages))


def _beside(node_ids: Sequence[str], shift: int) -> int:
    """How many shadows would lie on the node of their stage."""
    stages = len(node_ids)
    return sum(node_ids[stage] == node_ids[(stage + shift) % stages] for stage in range(stages))
