"""Trackers that are told of a job while a command follows it."""

import threading
from collections.abc import Callable, Sequence
from typing import Protocol

from peerloom.cli.output import say
from peerloom.errors import PeerloomError
from peerloom.kit.printable import escaped

END_LIMIT_S = 120.0  # once the job has ended, for what isn't written yet


class TrackedHandle(Protocol):
    """What is needed of a job's handle."""

    @property
    def id(self) -> str:
        """The job's id."""

    def track(self, *places: str, tell: Callable[[str], object]) -> None:
        """Tells trackers of the job until it has ended."""


class JobTrackers:
    """Tells trackers in a thread of its own, from the beginning on; what goes wrong is a line each."""

    def __init__(self, job: TrackedHandle, places: Sequence[str]) -> None:
        self._job, self._places = job, places
        self._thread = threading.Thread(target=self._track, daemon=True)
        self._thread.start()

    def finish(self) -> None:
        """The job has ended: waits until all is written, but not for ever."""
        self._thread.join(END_LIMIT_S)
        if self._thread.is_alive():
            self._say("not all is written yet")

    def _track(self) -> None:
        try:
            self._job.track(*self._places, tell=lambda line: say(escaped(line), err=True))
        except PeerloomError as error:
            if error.reason != "CLIENT_CLOSED":  # the command has ended, and with it the tracking
                self._say(escaped(error.message))

    def _say(self, what: str) -> None:
        again = f"peerloom jobs watch {self._job.id} --track TRACKER:PLACE"
        say(f"(tracking ended: {what}. What is missing gets there by: {again})", err=True)
