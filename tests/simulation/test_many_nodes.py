"""Half of very many nodes are lost at once, and their registry restarts: nobody else is declared dead."""

import pytest

from tests.simulation.many_nodes import flaws_of, run_course

NODES = 1000


@pytest.mark.timeout(120)
def test_half_of_many_nodes_are_lost_the_registry_restarts_and_all_others_live() -> None:
    seen = run_course(NODES)
    assert flaws_of(seen, NODES) == []
    assert len(seen.heard_s) == NODES // 2
