"""`make chaos`: CHAOS_SEED chooses the faults and each job's sync, CHAOS_SECONDS how long they go on.

With a PostgreSQL in PEERLOOM_TEST_DATABASE the coordinators of odd seeds have standbys.
"""

import os
import random
import signal
import sys
import tempfile
import threading
from pathlib import Path

from benchmarks.chaos.faults import Striker, draw
from benchmarks.chaos.jobs import Jobs
from benchmarks.chaos.left_behind import left_behind, tracebacks
from benchmarks.chaos.places import SLOTS
from benchmarks.chaos.promises import check_memory
from benchmarks.chaos.replicas import open_system
from benchmarks.chaos.system import Parts
from benchmarks.new_database import is_given


def main() -> int:
    """Runs the faults and the checks; 0 if every promise held."""
    seed = int(os.environ.get("CHAOS_SEED") or random.SystemRandom().randrange(10**6))
    seconds = float(os.environ.get("CHAOS_SECONDS") or "120")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that what was built is taken down
    print(f"chaos with seed {seed} for {seconds:.0f} s", file=sys.stderr)
    # Often enough that a job survives the death of all its workers at nearly any time.
    os.environ.setdefault("PEERLOOM_TRAINER_CHECKPOINT_INTERVAL_S", "1")
    with tempfile.TemporaryDirectory(prefix="peerloom-chaos-") as folder:
        run = Run(Path(folder), seed, seconds)
        broken = run.go()
        kept = os.environ.get("CHAOS_KEEP")
        if broken and kept:
            Path(folder).rename(kept)
            Path(folder).mkdir()
    for promise in broken:
        print(f"BROKEN: {promise}")
    print(f"{'FAILED' if broken else 'ok'}: CHAOS_SEED={seed} CHAOS_SECONDS={seconds:.0f} replays the faults")
    return 1 if broken else 0


class Run:
    """One run: jobs one after the other under the drawn faults, and what was broken."""

    def __init__(self, folder: Path, seed: int, seconds: float) -> None:
        self._folder, self._seed, self._seconds = folder, seed, seconds
        self._parts = Parts()
        self._over = threading.Event()
        self._memory: list[dict[int, int]] = []
        self._names: dict[int, str] = {}

    def go(self) -> list[str]:
        """Returns the promises that were broken."""
        self._parts.mark()
        has_standbys = is_given() and self._seed % 2 == 1
        with open_system(self._folder, SLOTS, has_standbys) as place:
            print(place.told, file=sys.stderr)
            jobs = Jobs(place, self._seed)
            faults = draw(self._seed, self._seconds, place.can_cut, has_standbys)
            striker = Striker(place, self._parts)
            striking = threading.Thread(target=striker.strike_all, args=(faults, self._over))
            striking.start()
            try:
                while striking.is_alive() or not jobs.count:
                    jobs.train()
                    self._remember_memory()
            finally:
                self._over.set()
            striking.join()
            jobs.check_interruptions(striker.struck)
            addresses = self._parts.addresses() if not place.can_cut else set()
            print(f"struck: {dict(striker.struck)}; {jobs.count} jobs", file=sys.stderr)
        jobs.check_losses()
        broken = jobs.broken + left_behind(self._parts, addresses) + tracebacks(self._folder)
        if len(self._memory) > 1:
            broken += check_memory(self._memory[0], self._memory[-1], self._names)
        return broken

    def _remember_memory(self) -> None:
        found = {}
        for part in self._parts.find():
            if not part.is_worker:
                found[part.process.pid] = part.process.memory_info().rss
                self._names[part.process.pid] = part.name
        self._memory.append(found)


if __name__ == "__main__":
    sys.exit(main())
