"""What the agent says to a worker after its assignment: lines on standard input, until its end."""

import json
import os
import sys
import threading
from collections.abc import Callable

OnLeave = Callable[[str, float], None]


class AgentCommands:
    """Reads in a thread: the main thread may sit in a collective that nothing interrupts.

    So the process just ends when the agent is gone.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: list[str] = []
        self._handlers: tuple[OnLeave, Callable[[], None]] | None = None
        threading.Thread(target=self._read, name="agent-lifeline", daemon=True).start()

    def listen(self, on_leave: OnLeave, on_stay: Callable[[], None]) -> None:
        """From now on calls these, first with what was said already.

        `on_leave` gets the reason and how long a replacement may be awaited, in seconds.
        """
        with self._lock:
            self._handlers = on_leave, on_stay
            waiting, self._waiting = self._waiting, []
            for line in waiting:
                self._handle(line)

    def _read(self) -> None:
        # The same buffered reader that read the assignment: it may hold the next line already.
        for line in sys.stdin:
            with self._lock:
                if self._handlers is None:
                    self._waiting.append(line)
                else:
                    self._handle(line)
        os._exit(1)

    def _handle(self, line: str) -> None:
        assert self._handlers is not None, "lines wait until somebody listens"
        on_leave, on_stay = self._handlers
        message = json.loads(line)
        if "leave" in message:
            on_leave(message["leave"], message["grace_s"])
        else:
            on_stay()
