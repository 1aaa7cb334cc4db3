"""`make soak`: SOAK_MINUTES says how long (default: 480), SOAK_SEED chooses the faults.

With a PostgreSQL in PEERLOOM_TEST_DATABASE the coordinators have standbys; as root each node is a network
namespace, and is cut off, too. SOAK_KEEP=1 keeps the result, which replaces another with a reason in WHY.
"""

import os
import random
import signal
import sys
import tempfile
import threading
import time
from pathlib import Path

from benchmarks.chaos.faults import Striker, draw
from benchmarks.chaos.jobs import Jobs
from benchmarks.chaos.places import Place
from benchmarks.chaos.replicas import open_system
from benchmarks.chaos.system import Parts
from benchmarks.keeping import check_may_keep, keep
from benchmarks.measure import MISSED, print_measurements
from benchmarks.new_database import is_given
from benchmarks.soak.checking import Checker
from benchmarks.soak.questions import Questions
from benchmarks.soak.sampling import Sampler
from benchmarks.soak.stretches import PAUSE_S, spare_coordinators
from benchmarks.soak.summary import summary

SLOTS = (2, 2, 1, 1, 1, 1, 1, 1)
LONG_LIVED = ("node-1", "node-2")  # the others' agents are killed too often to grow old
DEFAULT_MINUTES = 480.0
# What a run of 30 minutes fills in its first third: after that whatever comes takes the place of something.
LIMITS = {
    "PEERLOOM_NODE_ARTIFACT_LIMIT_BYTES": "2000000",
    "PEERLOOM_NODE_LOG_JOBS": "5",
    "PEERLOOM_TRAINER_MODEL_LIMIT_BYTES": "6000000",
    "PEERLOOM_TRAINER_CHECKPOINT_INTERVAL_S": "1",
}


def main() -> int:
    """0 if every promise held and nothing has grown beyond its bound."""
    minutes = float(os.environ.get("SOAK_MINUTES") or DEFAULT_MINUTES)
    seed = int(os.environ.get("SOAK_SEED") or random.SystemRandom().randrange(10**6))
    is_kept, why = bool(os.environ.get("SOAK_KEEP")), os.environ.get("WHY", "")
    if is_kept:
        check_may_keep("soak", why)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that what was built is taken down
    os.environ.update(LIMITS | os.environ)
    with tempfile.TemporaryDirectory(prefix="peerloom-soak-") as folder:
        soak = Soak(Path(folder), seed, 60 * minutes)
        with open_system(Path(folder), SLOTS, is_given()) as place:
            soak.go(place)
    measurements = summary(soak.minutes, place.told, soak.jobs, soak.questions, soak.sampler, soak.struck)
    print_measurements(measurements)
    for what, reason in soak.questions.reasons.items():
        print(f"the last question to {what} without answer: {reason}")
    for promise in soak.broken:
        print(f"BROKEN: {promise}")
    if is_kept:
        keep("soak", measurements, why)
    grown = [one.name for one in measurements if one.verdict == MISSED]
    for name in grown:
        print(f"GROWN: {name}")
    is_bad = bool(soak.broken or grown)
    print(f"{'FAILED' if is_bad else 'ok'}: SOAK_SEED={seed} SOAK_MINUTES={minutes:g} replays the faults")
    return 1 if is_bad else 0


class Soak:
    """One run in a place; what it found is there after `go`."""

    jobs: Jobs
    questions: Questions
    sampler: Sampler

    def __init__(self, folder: Path, seed: int, seconds: float) -> None:
        self._folder, self._seed, self._seconds = folder, seed, seconds
        self._parts = Parts()
        self._parts.mark()
        self._over = threading.Event()
        self.broken: list[str] = []
        self.struck: dict[str, int] = {}
        self.minutes = 0.0

    def go(self, place: Place) -> None:
        """Jobs, questions and faults for as long as it was asked for; promises are checked each minute."""
        began_s = time.monotonic()
        self.jobs = Jobs(place, self._seed)
        self.questions, self.sampler = Questions(place), Sampler(self._parts, self._folder)
        striker = Striker(place, self._parts, LONG_LIVED)
        drawn = draw(self._seed, self._seconds, place.can_cut, place.has_standbys, PAUSE_S)
        faults = spare_coordinators(drawn, self._seconds)
        striking = threading.Thread(target=striker.strike_all, args=(faults, self._over))
        checker = Checker(self._folder, self.jobs, self.questions, striker)
        with checker, self.questions, self.sampler:
            striking.start()
            try:
                while striking.is_alive() or not self.jobs.count:
                    self.jobs.train()
                    if self.jobs.newest:
                        self.questions.ask_model(self.jobs.newest)
            finally:
                self._over.set()
                striking.join()
        self.broken = checker.broken
        self.minutes, self.struck = (time.monotonic() - began_s) / 60, dict(striker.struck)


if __name__ == "__main__":
    sys.exit(main())
