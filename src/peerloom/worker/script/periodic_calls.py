"""Something that is done now and then, in a thread of its own, until it is closed."""

import threading
from collections.abc import Callable


class PeriodicCalls:
    """Calls `call` every `interval_s` seconds (0: never), never twice at once."""

    def __init__(self, call: Callable[[], object], interval_s: float) -> None:
        self._call, self._interval_s = call, interval_s
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._run, name="periodic", daemon=True)
        if interval_s:
            self._thread.start()

    def close(self) -> None:
        """No call begins from now on; returns when the one under way, if there is one, has ended."""
        self._closed.set()
        if self._interval_s:
            self._thread.join()

    def _run(self) -> None:
        while not self._closed.wait(self._interval_s):
            self._call()
