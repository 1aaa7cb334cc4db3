"""What no choice exceeds, and figures that can't mislead: by hand, and against chance."""

import math
from dataclasses import replace

import numpy as np
import pytest

from peerloom.simulator import Scenario, figures, simulate
from peerloom.simulator.ablations import ABLATIONS
from peerloom.simulator.bound import bound_gflops
from peerloom.simulator.host_sessions import OUTAGE_S, Sessions
from peerloom.simulator.hosts import TYPICAL_GFLOPS, Behaviour, SimulatedHost
from peerloom.simulator.populations import Population, population
from peerloom.simulator.rounds import Round

NOBODY = Population("two", (SimulatedHost(Behaviour.STEADY, 0), SimulatedHost(Behaviour.STEADY, 1)))


def bound(nodes: list[tuple[float, float, float]], wanted: int, budget: int) -> float:
    gflops, slots, transfer_s = (np.array(column, np.float64) for column in zip(*nodes, strict=True))
    return bound_gflops(gflops, slots, transfer_s, wanted=wanted, length_s=100.0, budget=budget)


def test_the_bound_by_hand() -> None:
    """4 slots for 100 s on typical nodes are 40,000. Nodes: speed of a slot, slots, seconds to get the model.

    Alone the fast one takes 10 + 40,000 / 800 = 60 s, with the slow one 10 + 40,000 / (100 * 4) = 110 s.
    """
    fast, slow, far = (800.0, 1, 10.0), (100.0, 3, 0.0), (800.0, 3, 45.0)
    assert bound([fast, slow], 4, 2) == pytest.approx(100 * TYPICAL_GFLOPS / 60)
    # With the far one there are 4 slots of 800: 45 + 12.5 = 57.5 s, and alone 45 + 16.7 s.
    assert bound([fast, slow, far], 4, 2) == pytest.approx(100 * TYPICAL_GFLOPS / 57.5)
    assert bound([fast, slow, far], 4, 1) == pytest.approx(100 * TYPICAL_GFLOPS / 60)
    assert bound([(100.0, 0, 0.0)], 4, 1) == 0.0


@pytest.mark.parametrize("name", ["volunteers-1000", "outages-300", "slowing-300", "loaded-100"])
@pytest.mark.parametrize("policy", ["oracle", "survival", "random"])
def test_nothing_exceeds_the_bound(name: str, policy: str) -> None:
    waits = 60.0 if name.startswith("loaded") else 0.0
    scenario = Scenario(name, policy, rounds=25, settling_s=3600.0, retry_s=waits, interval_s=120.0)
    _, rounds = simulate(scenario)
    assert all(one.useful_gflops <= one.bound_gflops * (1 + 1e-9) for one in rounds)


def test_figures_count_finished_work_and_hours_held() -> None:
    """One job finished in 100 s and held two hours of nodes; one was given up after three interruptions."""
    done = Round(0, 1, (0,), 1, finish_s=100.0, held_s=7200.0, useful_gflops=90.0, bound_gflops=100.0)
    lost = Round(1, 1, (0, 1), 1, interruptions=3, held_s=3600.0, bound_gflops=100.0, turned=1, found_out=1)
    told = figures(NOBODY, [done, lost])
    assert told["useful_gflops"] == 45.0
    assert told["of_bound"] == pytest.approx(0.45)
    assert told["interruptions"] == 1.5
    assert told["interruptions_node_hours"] == pytest.approx(100.0)
    assert (told["finished"], told["finish_s"]) == (0.5, 100.0)
    assert told["turned_requests"] == told["found_out_requests"] == pytest.approx(1 / 3)


def test_all_hosts_of_an_owner_go_at_once_and_stay_away_for_the_outage() -> None:
    hosts = [
        SimulatedHost(Behaviour.STEADY, 7, up_s=1e9, shape=math.inf, outage_every_s=3600.0) for _ in range(3)
    ]
    sessions = Sessions(hosts, 1)
    ends = {sessions.length_s(index, 0, 100.0) for index in range(3)}
    assert len(ends) == 1
    assert not sessions.notice(0, 0)
    end_s = 100.0 + ends.pop()
    assert all(sessions.start_s(index, 1, end_s) >= end_s + OUTAGE_S - 1e-6 for index in range(3))


def test_turncoats_are_strong_and_steady_until_they_turn() -> None:
    turned = [host for host in population("turncoats-300", 1).hosts if host.turns_after]
    assert len(turned) == 60
    assert all(host.gflops >= 8 * TYPICAL_GFLOPS and host.leaves == 0.8 for host in turned)


def test_each_ablation_of_survival_changes_what_it_says_and_can_be_simulated() -> None:
    scenario = Scenario("turncoats-300", rounds=3, settling_s=3600.0)
    for name in ABLATIONS:
        _, rounds = simulate(replace(scenario, policy=name))
        assert len(rounds) == 3, name
