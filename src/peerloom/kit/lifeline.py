"""A process that ends with whoever started it."""

import os
import threading
import time
from collections.abc import Callable

ORPHAN_LIMIT_S = 20.0


def watch_lifeline(on_end: Callable[[], object]) -> None:
    """Calls `on_end` when our starter dies: it holds the other end of the pipe PEERLOOM_LIFELINE names.

    So no process outlives the one that started it, not even when that one is killed by SIGKILL.
    """
    descriptor = os.environ.pop("PEERLOOM_LIFELINE", "")
    if not descriptor:
        return

    def wait() -> None:
        while os.read(int(descriptor), 1):
            pass
        on_end()
        time.sleep(ORPHAN_LIMIT_S)  # a service that hangs must not outlive its starter either
        os._exit(1)

    threading.Thread(target=wait, name="lifeline", daemon=True).start()
