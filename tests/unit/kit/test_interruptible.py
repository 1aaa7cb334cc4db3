"""Waits of the main thread: their length, and a signal that another thread took."""

import signal
import threading

import pytest

from peerloom.kit.interruptible import TURN_S, wait_for_event


def test_it_tells_whether_the_event_came() -> None:
    event = threading.Event()
    assert not wait_for_event(event, 0.0)
    assert not wait_for_event(event, 1.5 * TURN_S)
    timer = threading.Timer(1.5 * TURN_S, event.set)
    timer.start()
    assert wait_for_event(event)
    assert wait_for_event(event, 0.0)
    timer.join()


def test_a_signal_ends_it_though_another_thread_took_it() -> None:
    taker = threading.Timer(0.5 * TURN_S, signal.raise_signal, [signal.SIGINT])

    def wait() -> None:
        taker.start()  # in here: a busy machine may come back from it only after the signal
        wait_for_event(threading.Event())

    with pytest.raises(KeyboardInterrupt):
        wait()
    taker.join()
