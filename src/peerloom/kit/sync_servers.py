"""Which ranks hold the parts of a parameter server. Pure functions."""

from collections.abc import Sequence


def server_ranks(count: int, named: Sequence[str], nodes: Sequence[str]) -> tuple[int, ...]:
    """The ranks that hold parts, in their order; `nodes` has each rank's.

    Those are all on the `named` nodes; where none of these is there, or none is named, the first `count` (0:
    all), and all where there are fewer.
    """
    return tuple(rank for rank, node in enumerate(nodes) if node in named) or tuple(
        range(min(count or len(nodes), len(nodes)))
    )
