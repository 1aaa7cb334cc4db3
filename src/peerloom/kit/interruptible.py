"""Waits of a main thread that a signal ends, whichever thread of the process it met.

Python runs its handlers in the main thread, but ends a wait there only if the signal met that very thread.
gRPC has threads of its own, each of which may take it while the main thread waits for a core: so we wait in
short turns, between which a handler can run.
"""

import threading
import time

TURN_S = 0.2


def wait_for_event(event: threading.Event, timeout_s: float | None = None) -> bool:
    """Whether it is set within `timeout_s` seconds (None: for ever); raises what a signal's handler does."""
    end_s = float("inf") if timeout_s is None else time.monotonic() + timeout_s
    while not event.wait(max(0.0, min(TURN_S, end_s - time.monotonic()))):
        if time.monotonic() >= end_s:
            return False
    return True
