"""Where a model is cut: against brute force, by hand, and with the errors that say what is missing."""

import itertools
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from peerloom.errors import InvalidArgumentError, ResourceExhaustedError
from peerloom.inference.cut import LayerCost, StageNode, cut

_LAYERS = st.lists(
    st.builds(LayerCost, st.integers(1, 9), st.integers(1, 9).map(float)), min_size=1, max_size=6
).map(tuple)
_NODES = st.lists(
    st.tuples(st.integers(1, 30), st.sampled_from([0.5, 1.0, 2.0])), min_size=1, max_size=4
).map(lambda pairs: tuple(StageNode(f"n{i}", memory, speed) for i, (memory, speed) in enumerate(pairs)))


def best_by_trying_all(layers: tuple[LayerCost, ...], nodes: tuple[StageNode, ...]) -> float:
    """The least slowest stage over all subsequences of the nodes and all cuts."""
    best = math.inf
    for count in range(1, min(len(layers), len(nodes)) + 1):
        for chosen in itertools.combinations(nodes, count):
            for inner in itertools.combinations(range(1, len(layers)), count - 1):
                ends = [0, *inner, len(layers)]
                parts = [layers[first:end] for first, end in itertools.pairwise(ends)]
                fits = all(
                    sum(layer.parameter_bytes for layer in part) <= node.memory_bytes
                    for part, node in zip(parts, chosen, strict=True)
                )
                if fits:
                    times = [
                        sum(layer.seconds for layer in part) / node.speed
                        for part, node in zip(parts, chosen, strict=True)
                    ]
                    best = min(best, max(times))
    return best


@given(_LAYERS, _NODES)
def test_no_other_cut_has_a_faster_slowest_stage(
    layers: tuple[LayerCost, ...], nodes: tuple[StageNode, ...]
) -> None:
    expected = best_by_trying_all(layers, nodes)
    if expected == math.inf:
        with pytest.raises(ResourceExhaustedError):
            cut(layers, nodes)
        return
    stages, _ = cut(layers, nodes)
    assert max(stage.seconds for stage in stages) == pytest.approx(expected)
    assert [stage.first for stage in stages] == [0, *(stage.end for stage in stages[:-1])]
    assert stages[-1].end == len(layers)


def test_a_cut_by_hand() -> None:
    """Seconds 1, 2, 3, 2 on nodes of speed 1, 1, 2: 1 | 2 | (3+2)/2, so 2.5; two stages give 3 | 2.5."""
    layers = tuple(LayerCost(10, seconds) for seconds in (1.0, 2.0, 3.0, 2.0))
    nodes = (StageNode("a", 99, 1.0), StageNode("b", 99, 1.0), StageNode("c", 99, 2.0))
    stages, reason = cut(layers, nodes)
    assert [(stage.node, stage.first, stage.end) for stage in stages] == [
        ("a", 0, 1),
        ("b", 1, 2),
        ("c", 2, 4),
    ]
    assert "layers 2 to 3 on c, takes 2.5 s" in reason


def test_memory_moves_the_cut() -> None:
    """Node b can hold one layer only, so a takes two though that makes it slower than b."""
    layers = (LayerCost(10, 1.0),) * 3
    stages, _ = cut(layers, (StageNode("a", 20, 0.1), StageNode("b", 10, 10.0)))
    assert [(stage.node, stage.end - stage.first) for stage in stages] == [("a", 2), ("b", 1)]


def test_what_is_missing_is_said() -> None:
    layers = (LayerCost(40, 1.0), LayerCost(10, 1.0))
    with pytest.raises(ResourceExhaustedError, match="20 bytes are missing") as caught:
        cut(layers, (StageNode("a", 20, 1.0), StageNode("b", 10, 1.0)))
    assert caught.value.metadata["missing_bytes"] == "20"
    with pytest.raises(ResourceExhaustedError, match="largest layer needs 40 bytes, 10 more than any has"):
        cut(layers, (StageNode("a", 30, 1.0), StageNode("b", 30, 1.0)))


@pytest.mark.parametrize(
    ("stages", "limit"), [(3, "number of layers"), (-1, "number of layers"), (2, "nodes")]
)
def test_more_stages_than_layers_or_nodes_are_refused(stages: int, limit: str) -> None:
    with pytest.raises(InvalidArgumentError, match=limit):
        cut((LayerCost(1, 1.0),) * 2, (StageNode("a", 9, 1.0),), stages)
