"""Ctrl-C, SIGTERM and a closed terminal, all as one KeyboardInterrupt, once."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

# Windows has no SIGHUP.
_SIGNALS = tuple(getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name))


@contextmanager
def stop_signals() -> Iterator[None]:
    """Inside, the first of the signals raises KeyboardInterrupt; later ones don't disturb the stop."""

    def interrupt(_: int, __: FrameType | None) -> None:
        for number in _SIGNALS:
            signal.signal(number, signal.SIG_IGN)
        raise KeyboardInterrupt

    before = {number: signal.signal(number, interrupt) for number in _SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
