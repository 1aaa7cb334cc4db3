"""Plays a churn script against a running testbed, in a thread of its own."""

import json
import threading
import time
from collections.abc import Callable
from pathlib import Path

from peerloom.errors import PeerloomError
from peerloom.testbed.churn import timed_actions
from peerloom.testbed.plan import Action, Plan, TimedAction


class ChurnPlayer:
    """Applies each action at its time after `start`; STATE/events.jsonl has a line each, with how it went."""

    def __init__(
        self, plan: Plan, apply: Callable[[Action], None], path: Path, tell: Callable[[str], None]
    ) -> None:
        self._actions, self._apply, self._path, self._tell = timed_actions(plan), apply, path, tell
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="churn", daemon=True)

    def start(self) -> None:
        """Time zero."""
        self._path.unlink(missing_ok=True)
        if self._actions:
            self._thread.start()

    def stop(self) -> None:
        """Applies no more."""
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        start_s = time.monotonic()
        for timed in self._actions:
            if self._stopping.wait(max(0.0, start_s + timed.at_s - time.monotonic())):
                return
            self._do(timed, start_s)

    def _do(self, timed: TimedAction, start_s: float) -> None:
        problem = ""
        try:
            self._apply(timed.action)
        except PeerloomError as error:
            problem = error.message
        line = {
            "at_s": timed.at_s,
            "done_s": time.monotonic() - start_s,
            "action": str(timed.action),
            "error": problem,
        }
        with self._path.open("a") as file:
            file.write(json.dumps(line) + "\n")
        self._tell(f"{timed.at_s:.1f} s: {timed.action}" + (f" failed: {problem}" if problem else ""))
