"""Looks at a running testbed each second: its counters to a file, and what passed during each job.

STATE/traffic.jsonl has a line a sample. It never grows beyond a limit: when that is reached, every second
line goes and from then on half as many are written.
"""

import json
import threading
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

from peerloom.errors import PeerloomError
from peerloom.testbed.backends import Backend, Stats
from peerloom.testbed.plan import Plan
from peerloom.testbed.traffic import Traffic, traffic_between

INTERVAL_S = 1.0
LINE_LIMIT = 3600
# A job that is seen to have begun in between two samples is counted from the one before.
_KEPT_SAMPLES = 2


class SampleFile:
    """The file of samples, and how often to write one."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lines = 0
        self._every = 1
        self._skipped = 0
        path.unlink(missing_ok=True)

    def add(self, stats: Stats) -> None:
        """Writes a sample, or passes over it when fewer are wanted by now."""
        self._skipped += 1
        if self._skipped < self._every:
            return
        self._skipped = 0
        with self._path.open("a") as file:
            file.write(json.dumps(asdict(stats), separators=(",", ":")) + "\n")
        self._lines += 1
        if self._lines >= LINE_LIMIT:
            kept = self._path.read_text().splitlines(keepends=True)[::2]
            self._path.write_text("".join(kept))
            self._lines, self._every = len(kept), 2 * self._every


class JobTraffic:
    """Which jobs run, and the samples taken while each did."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._recent: list[Stats] = []
        self._open: dict[str, list[Stats]] = {}
        self._done: set[str] = set()

    def note(self, stats: Stats, jobs: dict[str, bool]) -> dict[str, Traffic]:
        """Takes a sample and the jobs as they are (by id: whether they have ended); returns the finished."""
        self._recent = [*self._recent, stats][-_KEPT_SAMPLES:]
        finished = {}
        for job, ended in jobs.items():
            if job in self._done:
                continue
            samples = self._open.setdefault(job, [self._recent[0]])
            samples.append(stats)
            if len(samples) > 3:  # the first, the last, and between them the one with the worst lag
                samples[1:-1] = [max(samples[1:-1], key=lambda one: one.lag_s or 0.0)]
            if ended:
                finished[job] = traffic_between(self._plan, self._open.pop(job))
                self._done.add(job)
        return finished


class Watch:
    """The thread that looks. `jobs` tells the jobs, `finished` is told each job's traffic at its end."""

    def __init__(
        self,
        plan: Plan,
        backend: Backend,
        path: Path,
        jobs: Callable[[], dict[str, bool]],
        finished: Callable[[str, Traffic], None],
    ) -> None:
        self._plan, self._backend, self._jobs, self._finished = plan, backend, jobs, finished
        self._samples = SampleFile(path)
        self._jobs_seen = JobTraffic(plan)
        self._history: list[Stats] = []
        self._stopping = threading.Event()
        self._looking = threading.Lock()
        self._thread = threading.Thread(target=self._run, name="watch", daemon=True)

    def start(self) -> None:
        """Takes the first sample, then one a second."""
        self.look()
        self._thread.start()

    def stop(self) -> None:
        """Takes the last sample."""
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join()

    def look(self) -> None:
        """Takes a sample now. Raises a PeerloomError when the back end doesn't answer."""
        with self._looking:
            stats = self._backend.stats()
            self._samples.add(stats)
            self._history = [*self._history, stats]
            if len(self._history) > 3:
                self._history[1:-1] = [max(self._history[1:-1], key=lambda one: one.lag_s or 0.0)]
            for job, traffic in self._jobs_seen.note(stats, self._jobs()).items():
                self._finished(job, traffic)

    def traffic(self) -> Traffic:
        """From the first sample to the newest."""
        return traffic_between(self._plan, self._history)

    def _run(self) -> None:
        while not self._stopping.wait(INTERVAL_S):
            try:
                self.look()
            except PeerloomError:
                continue  # a restart of the trainer, or the end of it all: the next look tells
