"""One race: from when all have begun until a job's model is good enough, a worker killed each 30 s."""

import random
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from benchmarks.accuracy.curve_file import read
from benchmarks.accuracy.racers import Line, Racer
from benchmarks.accuracy.trial import HOSTS

FIRST_KILL_S, KILL_EACH_S = 15.0, 30.0
START_LIMIT_S = 180.0
_POLL_S = 0.1


@dataclass(frozen=True)
class Outcome:
    """`seconds` until the target, or the limit where it wasn't `reached`; `curve` are (s, epochs, accuracy).

    `end` are the last words of a job that ended before.
    """

    seconds: float
    reached: bool
    kills: int
    curve: tuple[tuple[float, float, float], ...]
    end: str = ""


def run_race(
    racer: Racer,
    limit_s: float,
    now_s: Callable[[], float] = time.time,
    sleep: Callable[[float], None] = time.sleep,
) -> Outcome:
    """Starts the job, kills its workers, and ends it. The same seed draws the same hosts for all racers.

    Raises SystemExit where the job doesn't begin within three minutes.
    """
    racer.start()
    try:
        began_s = _began_s(racer, now_s, sleep)
        hosts, kills, due_s = _victims(racer.trial.seed), 0, began_s + FIRST_KILL_S
        while now_s() < began_s + limit_s:
            curve = _curve(read(racer.curve), began_s)
            good = [seconds for seconds, _, accuracy in curve if accuracy >= racer.trial.target]
            if good and good[0] <= limit_s:
                return Outcome(good[0], True, kills, curve)
            if end := racer.ended():
                return Outcome(limit_s, False, kills, curve, end)
            if now_s() >= due_s:
                kills, due_s = kills + _killed(racer, next(hosts)), due_s + KILL_EACH_S
            sleep(_POLL_S)
        return Outcome(limit_s, False, kills, curve)
    finally:
        racer.end()


def _began_s(racer: Racer, now_s: Callable[[], float], sleep: Callable[[float], None]) -> float:
    """When the last of all was about to make its first step."""
    kind, deadline_s = ("formed" if racer.begins == 1 else "began"), now_s() + START_LIMIT_S
    while now_s() < deadline_s:
        if end := racer.ended():
            raise SystemExit(f"a job ended before it had begun: {end}")
        begun = [line["at_s"] for line in read(racer.curve) if line["kind"] == kind]
        if len(begun) >= racer.begins:
            return float(begun[racer.begins - 1])
        sleep(_POLL_S)
    raise SystemExit(f"a job hadn't begun after {START_LIMIT_S:.0f} s; what it said lies in {racer.folder}")


def _curve(lines: list[Line], began_s: float) -> tuple[tuple[float, float, float], ...]:
    told = [line for line in lines if line["kind"] == "accuracy"]
    return tuple((line["at_s"] - began_s, line["epoch"], line["accuracy"]) for line in told)


def _victims(seed: int) -> Iterator[int]:
    chance = random.Random(seed)
    while True:
        yield chance.randrange(HOSTS)


def _killed(racer: Racer, host: int) -> int:
    """1 when a host's worker was killed, 0 when it had none just then."""
    process = racer.worker_on(host)
    if process is None:
        return 0
    process.kill()
    racer.restart(host)
    return 1
