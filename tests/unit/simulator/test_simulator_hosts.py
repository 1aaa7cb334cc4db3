"""Hosts: sessions as their distributions say, traces as their lines say, populations by name."""

import itertools
import math
import statistics
from pathlib import Path

import numpy as np
import pytest

from peerloom.errors import InvalidArgumentError, NotFoundError
from peerloom.simulator.chance import uniform, uniforms, weibulls
from peerloom.simulator.figures import gini, mean_with_interval
from peerloom.simulator.host_sessions import Sessions
from peerloom.simulator.hosts import ATTACKERS, Behaviour, SimulatedHost
from peerloom.simulator.populations import SYBILS, population
from peerloom.simulator.trace import read_trace


def test_chance_without_state_is_even_and_differs_by_every_argument() -> None:
    drawn = [uniform(1, host, number, 0) for host in range(100) for number in range(100)]
    assert statistics.fmean(drawn) == pytest.approx(0.5, abs=0.01)
    assert statistics.pvariance(drawn) == pytest.approx(1 / 12, abs=0.002)
    assert (
        len({uniform(*at) for at in ((1, 2, 3, 4), (2, 2, 3, 4), (1, 3, 3, 4), (1, 2, 4, 4), (1, 2, 3, 5))})
        == 5
    )
    assert uniform(1, 2, 3, 4) == uniform(1, 2, 3, 4)
    for seed, host in ((1, 2), (2**32, 99_999)):
        one_by_one = [uniform(seed, host, number, 2) for number in range(64, 96)]
        assert uniforms(seed, host, range(64, 96), 2).tolist() == one_by_one


@pytest.mark.parametrize("shape", [0.4, 1.0, 3.0])
def test_weibull_lengths_have_their_mean(shape: float) -> None:
    grid = weibulls((np.arange(200_000) + 0.5) / 200_000, shape)
    assert float(grid.mean()) == pytest.approx(1.0, rel=0.01)


def test_equal_sessions_are_equal_and_degrading_ones_get_shorter() -> None:
    even = SimulatedHost(Behaviour.FLAPPING, 0, up_s=30.0, down_s=30.0, shape=math.inf)
    worse = SimulatedHost(Behaviour.DEGRADING, 1, shape=math.inf)
    sessions = Sessions([even, worse], 1)
    assert {sessions.length_s(0, number, 1e4) for number in range(5)} == {30.0}
    assert sessions.length_s(1, 0, 10 * 86_400) == pytest.approx(sessions.length_s(1, 0, 0.0) / 4)


def test_a_diurnal_host_comes_once_a_day() -> None:
    host = SimulatedHost(Behaviour.DIURNAL, 0, up_s=36_000.0)
    sessions, now_s, starts = Sessions([host], 3), 0.0, []
    for number in range(8):
        start_s = sessions.start_s(0, number, now_s)
        starts.append(start_s)
        now_s = start_s + sessions.length_s(0, number, start_s)
    days = [after - before for before, after in itertools.pairwise(starts[1:])]
    assert all(22 * 3600 <= day <= 26 * 3600 for day in days)


def trace(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "trace.csv"
    path.write_text(text)
    return path


def test_a_trace_is_read_by_host_and_time(tmp_path: Path) -> None:
    found = read_trace(
        trace(tmp_path, "# a comment\n\nb,50,60,1\na,0,10,0\n b , 5, inf, 0\n".replace("5, inf", "70, inf"))
    )
    assert list(found) == ["a", "b"]
    assert [(one.start_s, one.end_s, one.notice) for one in found["b"]] == [
        (50, 60, True),
        (70, math.inf, False),
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "holds no session"),
        ("# only a comment\n", "holds no session"),
        ("a,0,10,0\na,b,c,d\n", "line 2"),
        ("a,0,10\n", "line 1"),
        ("a,0,10,2\n", "line 1"),
        ("a,0,10,0\na,20,20,0\n", "line 2"),
        ("a,-1,10,0\n", "line 1"),
        ("a,nan,10,0\n", "line 1"),
        (",0,10,0\n", "line 1"),
        ("a,0,10,0\nb,0,1,0\na,9,20,0\n", "line 3 .*overlap: 1 and 3"),
    ],
)
def test_a_malformed_trace_is_refused_with_the_line(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(InvalidArgumentError, match=message):
        read_trace(trace(tmp_path, text))


def test_a_trace_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidArgumentError, match="can't be read"):
        read_trace(tmp_path / "nowhere")


def test_volunteers_are_mostly_weak_and_thirty_percent_flaky() -> None:
    hosts = population("volunteers-1000", 1).hosts
    speeds = sorted(host.gflops for host in hosts)
    assert sum(host.behaviour is Behaviour.FLAPPING for host in hosts) == 300
    assert speeds[500] < statistics.fmean(speeds)  # the mean is made by a few strong ones
    assert speeds[-1] > 10 * speeds[500]


def test_hostile_populations_hold_every_attacker_and_a_hundred_names_of_one_owner() -> None:
    hosts = population("hostile-1000", 1).hosts
    assert {host.behaviour for host in hosts} >= ATTACKERS
    assert len({host.owner for host in hosts if host.behaviour is Behaviour.SYBIL}) == 1
    assert sum(host.behaviour is Behaviour.SYBIL for host in hosts) == SYBILS


@pytest.mark.parametrize(
    ("name", "gpus"), [("thesis20", [3, 2, 2, 1, 1]), ("thesis20-text", [3, 2, 1, 1, 1])]
)
def test_the_thesis_s_nodes_are_where_it_says(name: str, gpus: list[int]) -> None:
    hosts = population(name, 1).hosts
    assert [hosts[node].slots for node in (5, 6, 7, 11, 17)] == gpus
    assert sum(host.slots for host in hosts) == sum(gpus)
    assert len(hosts) == 20


def test_an_unknown_population_is_answered_with_the_nearest() -> None:
    with pytest.raises(NotFoundError, match="Did you mean volunteers-1000"):
        population("volunteer-1000", 1)


def test_gini_and_intervals_by_hand() -> None:
    assert gini([1, 1, 1, 1]) == 0
    assert gini([0, 0, 0, 1]) == pytest.approx(0.75)
    assert gini([0, 0]) == 0
    # mean 2, deviation 1, t = 4.303 for two degrees of freedom: 4.303 / sqrt(3)
    assert mean_with_interval([1.0, 2.0, 3.0, math.nan]) == pytest.approx((2.0, 2.4843), rel=1e-4)
    assert math.isnan(mean_with_interval([1.0])[1])
