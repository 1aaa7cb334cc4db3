"""When all that a system's job gave rise to has reached the selector: nothing comes after that."""

import sqlite3
import threading
import time
from contextlib import closing

from peerloom import Embedded
from peerloom.embedded.health import Prober

LIMIT_S = 120.0


def wait_until_all_is_told(system: Embedded) -> None:
    """For a system whose jobs have ended: returns when every process serves and no evidence waits.

    An agent that was killed serves when it has registered again, which tells of its interruption. The
    trainer forgets evidence when the selector has acknowledged it. Raises AssertionError after two minutes.
    """
    pause, deadline_s = threading.Event(), time.monotonic() + LIMIT_S
    with Prober() as prober:
        while left := _left(system, prober):
            assert time.monotonic() < deadline_s, left
            pause.wait(0.1)


def _left(system: Embedded, prober: Prober) -> list[str]:
    absent = [name for name, address in system.addresses.items() if prober.health(address) != "SERVING"]
    if absent:
        return absent
    with closing(sqlite3.connect(system.folder.path / "trainer" / "trainer.sqlite")) as connection:
        (count,) = connection.execute("select count(*) from evidence_outbox").fetchone()
    return [f"{count} pieces of evidence"] if count else []
