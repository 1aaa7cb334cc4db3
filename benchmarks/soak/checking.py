"""The promises, checked each minute beside jobs, questions and faults."""

import sys
from pathlib import Path

from benchmarks.chaos.faults import Striker
from benchmarks.chaos.jobs import Jobs
from benchmarks.chaos.left_behind import tracebacks
from benchmarks.repeating import Repeating
from benchmarks.soak.questions import Heard

CHECK_EACH_S = 60.0


class Checker(Repeating):
    """Checks while the context lasts, and once more at its end.

    What only a job's end can tell, `jobs` checks by itself.
    """

    def __init__(self, folder: Path, jobs: Jobs, questions: Heard, striker: Striker) -> None:
        super().__init__("checker", CHECK_EACH_S)
        self._folder, self._jobs, self._questions, self._striker = folder, jobs, questions, striker
        self._told: list[str] = []  # tracebacks, and checks that failed

    @property
    def broken(self) -> list[str]:
        """All promises that weren't kept so far."""
        return [*self._jobs.broken, *self._questions.broken, *self._told]

    def __exit__(self, *_: object) -> None:
        super().__exit__()
        self.act()

    def act(self) -> None:
        """Checks once."""
        before = len(self.broken)
        try:
            self._jobs.check_interruptions(self._striker.struck)
            self._jobs.check_losses()
        except (Exception, SystemExit) as error:  # on this thread nobody else would hear of it
            self._told.append(f"promises could not be checked: {error!r}")
        self._told += [text for text in tracebacks(self._folder) if text not in self._told]
        found = len(self.broken) - before
        verdict = f"{found} more broken" if found else "all kept"
        print(f"-- promises checked after {self._jobs.count} jobs: {verdict}", file=sys.stderr, flush=True)
