"""What the thesis reports of its own experiments, figure by figure.

Figures 4 and 5 are curves without a table in the text, so only what the prose says of them is kept here.
"""

from collections.abc import Mapping
from types import MappingProxyType

NODES = 20
# By node's number; the table's head. The text of section 4.4.2 says 3, 2, 1, 1, 1.
GPUS: Mapping[int, int] = MappingProxyType({5: 3, 6: 2, 7: 2, 11: 1, 17: 1})
BUDGETS = (2, 3, 4, 6, 8)
ROUNDS = 50

# Figure 6: times that nodes 5, 6, 7, 11 and 17 were reached in 50 rounds, by budget.
HITS: Mapping[int, tuple[int, ...]] = MappingProxyType(
    {
        2: (8, 5, 2, 3, 3),
        3: (4, 12, 13, 7, 7),
        4: (8, 11, 16, 6, 11),
        6: (16, 11, 7, 17, 17),
        8: (19, 23, 19, 16, 2),
    }
)
# The paragraph below Figure 6.
REACHED: Mapping[int, int] = MappingProxyType({2: 35, 3: 46, 4: 46, 6: 50, 8: 50})

# Figures 7 and 8: GPUs of the nodes reached with a budget of 3, and seconds of training.
ROUNDS_OF_3: Mapping[str, tuple[tuple[str, float], ...]] = MappingProxyType(
    {
        "mnist": (("2", 32.607), ("3", 26.497), ("none", 0.000316), ("3", 25.902)),
        "cifar10": (("3 and 2", 25.625), ("none", 0.000362), ("none", 0.000241), ("2", 32.054)),
    }
)


def slots_of_nodes() -> tuple[int, ...]:
    """Slots of node 1 to node 20 as in the table's head."""
    return tuple(GPUS.get(number, 0) for number in range(1, NODES + 1))


def contradictions() -> dict[int, str]:
    """Where Figure 6 and the paragraph below it can't both be right, by budget: a sentence each.

    A round that reached compute hit at least one of the five nodes, so hits in all can't be fewer than such
    rounds.
    """
    return {
        budget: f"{sum(hits)} hits can't make {REACHED[budget]} rounds that reached compute"
        for budget, hits in HITS.items()
        if sum(hits) < REACHED[budget]
    }
