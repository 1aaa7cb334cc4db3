"""What libraries write to Python's own logs, as lines of ours."""

import logging
import time

from peerloom.kit.logs import get_logger

INTERVAL_S = 60.0
_log = get_logger()


def hear_library(name: str, event: str) -> None:
    """Turns the warnings of a library's loggers into this event, one a minute at most; empty: into nothing.

    An application that listens to the library itself goes on to, and nothing changes.
    """
    library = logging.getLogger(name)
    if not library.handlers:
        library.addHandler(_Warnings(event) if event else logging.NullHandler())
        library.propagate = False


class _Warnings(logging.Handler):
    def __init__(self, event: str) -> None:
        super().__init__(logging.WARNING)
        self._event = event
        self._next_s = 0.0

    def emit(self, record: logging.LogRecord) -> None:
        now_s = time.monotonic()
        if now_s >= self._next_s:
            self._next_s = now_s + INTERVAL_S
            _log.warning(self._event, reason=record.getMessage())
