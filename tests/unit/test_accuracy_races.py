"""Races to an accuracy: what counts as there, when workers are killed, and who has the limit for a time."""

import json
from pathlib import Path

import psutil
import pytest

from benchmarks.accuracy.race import Outcome, run_race
from benchmarks.accuracy.racers import Racer
from benchmarks.accuracy.trial import HOSTS, Trial

BEGAN_S = 1000.0


class _Process(psutil.Process):
    """Not killed, as it is this one."""

    def kill(self) -> None:
        pass


class _Racer(Racer):
    """Tells what it is given, all from the start."""

    def __init__(self, folder: Path, told: list[tuple[float, float, float]], end: str = "") -> None:
        trial = Trial("mnist", {}, batch=64, target=0.96, seed=1)
        super().__init__(None, trial, folder)  # type: ignore[arg-type]  # it runs nowhere
        self._told, self._end, self.is_there = told, end, True
        self.restarted: list[int] = []
        self.has_ended = False

    def start(self) -> None:
        lines = [{"at_s": BEGAN_S - 1 + host / (HOSTS - 1), "kind": "began"} for host in range(HOSTS)]
        lines += [
            {"at_s": BEGAN_S + at_s, "kind": "accuracy", "epoch": epoch, "accuracy": accuracy}
            for at_s, epoch, accuracy in self._told
        ]
        self.curve.write_text("".join(json.dumps(line) + "\n" for line in lines))

    def worker_on(self, host: int) -> psutil.Process | None:
        return _Process() if self.is_there else None

    def restart(self, host: int) -> None:
        self.restarted.append(host)

    def ended(self) -> str:
        return self._end

    def end(self) -> None:
        self.has_ended = True


class _Clock:
    """Goes on by what would be waited."""

    def __init__(self) -> None:
        self.now_s = BEGAN_S

    def advance(self, seconds: float) -> None:
        self.now_s += seconds


def _run(racer: Racer, limit_s: float = 100.0) -> Outcome:
    clock = _Clock()
    return run_race(racer, limit_s, lambda: clock.now_s, clock.advance)


def test_time_counts_from_the_last_beginning_to_the_first_epoch_that_is_good_enough(tmp_path: Path) -> None:
    racer = _Racer(tmp_path, [(20.0, 1, 0.90), (40.0, 2, 0.96), (60.0, 3, 0.95)])
    outcome = _run(racer)
    assert (outcome.seconds, outcome.reached) == (40.0, True)
    assert racer.has_ended


def test_who_is_never_good_enough_has_the_limit_and_lost_a_worker_each_thirty_seconds(tmp_path: Path) -> None:
    racer = _Racer(tmp_path, [(20.0, 1, 0.90)])
    outcome = _run(racer, limit_s=100.0)
    assert (outcome.seconds, outcome.reached) == (100.0, False)
    assert outcome.kills == 3  # after 15, 45 and 75 s
    assert racer.restarted == _hosts_of(tmp_path, 3)  # the same hosts for all of a seed
    assert racer.has_ended


def _hosts_of(folder: Path, count: int) -> list[int]:
    other = _Racer(folder, [])
    _run(other, limit_s=15.0 + 30.0 * (count - 1) + 1.0)
    return other.restarted


def test_a_worker_that_isnt_there_isnt_counted_as_killed(tmp_path: Path) -> None:
    racer = _Racer(tmp_path, [])
    racer.is_there = False
    assert _run(racer).kills == 0


def test_a_job_that_has_ended_has_the_limit_and_its_last_words(tmp_path: Path) -> None:
    began = _Racer(tmp_path, [])
    ends = iter([""] + ["RuntimeError: gone"] * 9)
    began.ended = lambda: next(ends)  # type: ignore[method-assign]  # it ends once it has begun
    outcome = _run(began)
    assert (outcome.seconds, outcome.reached, outcome.end) == (100.0, False, "RuntimeError: gone")


def test_a_job_that_ends_before_it_has_begun_is_told(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="before it had begun: no room"):
        _run(_Racer(tmp_path, [], end="no room"))
