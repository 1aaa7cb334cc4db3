"""Whether something grows, as `make soak` judges it: by hand-computed slopes, and by planted leaks."""

import random
from pathlib import Path
from typing import Any

import pytest

from benchmarks.chaos.faults import FREEZE_COORDINATOR, Fault, Striker
from benchmarks.chaos.places import Loopback
from benchmarks.chaos.system import Part, Parts
from benchmarks.measure import MET, MISSED, OPEN
from benchmarks.soak.growth import Reading, growth, in_blocks, settled, slopes
from benchmarks.soak.questions import Heard
from benchmarks.soak.stretches import spare_coordinators


def series(*values: float, each_s: float = 10.0) -> list[Reading]:
    return [Reading(number * each_s, value) for number, value in enumerate(values)]


def leaking(megabytes_an_hour: float, seed: int, start: float = 100.0) -> list[Reading]:
    """Ten minutes of readings, each 5 s, that scatter by 2 MB."""
    chance = random.Random(seed)
    return [
        Reading(5.0 * number, start + megabytes_an_hour * number / 720 + chance.gauss(0.0, 2.0))
        for number in range(120)
    ]


def test_each_reading_of_the_first_half_has_one_half_a_life_later() -> None:
    """1, 2, 4, 8 each 10 s: 1 to 4 and 2 to 8 in 20 s each, thus 3 and 6 in 20 s, 540 and 1080 an hour."""
    assert slopes(series(1.0, 2.0, 4.0, 8.0)) == [540.0, 1080.0]


def test_of_an_odd_number_the_middle_one_stands_alone() -> None:
    assert slopes(series(1.0, 99.0, 3.0)) == [360.0]
    assert slopes(series(1.0)) == slopes([]) == []


def test_a_block_is_its_medians() -> None:
    assert in_blocks(series(1.0, 9.0, 2.0, 5.0, 5.0, 50.0), 30.0) == [Reading(10.0, 2.0), Reading(40.0, 5.0)]


def test_the_warm_up_is_left_out() -> None:
    assert settled(series(1.0, 7.0, 8.0), 10.0) == [Reading(10.0, 7.0), Reading(20.0, 8.0)]


def test_lives_are_not_compared_with_each_other() -> None:
    """Two flat lives at 10 and 90: nothing has grown."""
    lives = [series(*[10.0] * 12), series(*[90.0] * 12)]
    found = growth("memory", "MB", lives, 20.0, warm_up_s=0.0, block_s=10.0)
    assert found is not None
    assert (found.value, found.samples, found.verdict) == (0.0, [0.0] * 12, MET)


def test_lives_that_were_too_short_tell_nothing() -> None:
    assert growth("memory", "MB", [series(1.0, 2.0)], 20.0, warm_up_s=60.0, block_s=10.0) is None


@pytest.mark.parametrize(("leak", "verdict"), [(0.0, MET), (200.0, MISSED), (20.0, OPEN)])
def test_a_planted_leak_is_found_and_noise_is_none(leak: float, verdict: str) -> None:
    """Of a bound of 20 MB an hour; a leak just as large can't be told from it."""
    lives = [leaking(leak, seed, start=100.0 + 30.0 * seed) for seed in range(4)]
    found = growth("memory", "MB", lives, 20.0, warm_up_s=60.0, block_s=10.0)
    assert found is not None
    assert found.verdict == verdict, found.interval


def test_outside_of_storms_other_faults_take_the_place_of_the_coordinators() -> None:
    """A fault each 10 s for 60 s: 12 s are the storm. A lot of 0.75 is the second kind, and 0.5 there."""
    drawn = [
        Fault(10.0, FREEZE_COORDINATOR, 1.0, 0.75),
        Fault(10.0, "kill a worker", 1.0, 0.5),
        Fault(10.0, FREEZE_COORDINATOR, 2.0, 0.75),
        Fault(10.0, "stop a worker for a while", 1.0, 0.5),
        Fault(10.0, FREEZE_COORDINATOR, 1.0, 0.25),
    ]
    instead = [Fault(10.0, "stop a worker for a while", 2.0, 0.5), Fault(10.0, "kill a worker", 1.0, 0.5)]
    assert spare_coordinators(drawn, 60.0) == [*drawn[:2], instead[0], drawn[3], instead[1]]


@pytest.mark.parametrize("kind", ["kill an agent", "a node leaves politely and joins again"])
@pytest.mark.parametrize("spared", ["node-1", "node-2"])
def test_a_spared_node_grows_old_and_others_end(kind: str, spared: str) -> None:
    ended: list[str] = []
    striker = Striker(Loopback(Path(), (1, 1)), _Nodes(ended), [spared])
    for lot in (0.0, 0.9):
        striker.strike(Fault(0.0, kind, 1.0, lot))
    assert ended == [name for name in ("node-1", "node-2") if name != spared]
    assert striker.struck == {kind: 1}


class _Nodes(Parts):
    """Two nodes, an agent and a worker each; notes whose agent is ended."""

    def __init__(self, ended: list[str]) -> None:
        super().__init__()
        self._ended = ended

    def find(self) -> list[Part]:
        found = []
        for name in ("node-1", "node-2"):
            process: Any = _Process(name, self._ended)
            found += [Part(name, process), Part(name, process, is_worker=True)]
        return found


class _Process:
    def __init__(self, name: str, ended: list[str]) -> None:
        self._name, self._ended = name, ended

    def kill(self) -> None:
        self._ended.append(self._name)

    def send_signal(self, _: object) -> None:
        self._ended.append(self._name)


def test_a_model_that_answers_otherwise_later_breaks_a_promise() -> None:
    heard = Heard()
    for answer in ([1.0], [1.0], [2.0]):
        heard.note({"what": "inference", "model": "job-1", "took_s": 0.5, "answer": answer}, 1.0)
    heard.note({"what": "inference", "model": "job-1", "took_s": 9.0, "failed": "away"}, 2.0)
    assert heard.broken == ["the model of job-1 answers [2.0], and [1.0] before"]
    assert [one.value for one in heard.took["inference"]] == [500.0] * 3
    assert heard.failed["inference"] == 1
