"""Lets gloo's threads lay down what they hold before the interpreter of a script ends.

A thread of gloo releases the tensors of a collective after the script was told that it is done. If the
interpreter is ending by then, Python ends the thread in the midst of a destructor, and C++ aborts the
process: a script that did all its work fails by signal 6 (pytorch/pytorch#190489). `destroy_process_group`
waits for these threads only where nothing else, such as a device mesh, holds the group.

Every Python that a script starts imports this, so it imports little.
"""

import atexit
import os
import sys
import time
from importlib.machinery import PathFinder
from importlib.util import module_from_spec

_THREAD = "pt_gloo_runloop"
_LOOK_S = 0.002
_LIMIT_S = 5.0


def _read(thread: str, name: str) -> str:
    try:
        with open(f"/proc/self/task/{thread}/{name}") as file:
            return file.read()
    except OSError:  # it has ended
        return ""


def _state(thread: str) -> tuple[bool, list[str]]:
    """Whether it sleeps or has ended, and how often it was given a processor and lost it."""
    lines = _read(thread, "status").splitlines()
    states = [line.split()[1] for line in lines if line.startswith("State:")]
    return states in ([], ["S"]), [line for line in lines if "ctxt_switches" in line]


def wait_for_gloo() -> None:
    """Waits until each of gloo's threads has slept between two looks with the interpreter free for it."""
    threads = [task for task in os.listdir("/proc/self/task") if _read(task, "comm").strip() == _THREAD]
    until_s = time.monotonic() + _LIMIT_S
    seen: list[tuple[bool, list[str]]] = []
    while threads and time.monotonic() < until_s:
        now = [_state(thread) for thread in threads]
        if now == seen and all(sleeps for sleeps, _ in now):
            return
        seen = now
        time.sleep(_LOOK_S)  # without the interpreter's lock, which such a thread may wait for


def _customise_as_without_this() -> None:
    own = os.path.dirname(__file__)
    sys.path[:] = [place for place in sys.path if place != own]
    if (spec := PathFinder.find_spec("sitecustomize")) is not None and spec.loader is not None:
        sys.modules["sitecustomize"] = module = module_from_spec(spec)
        spec.loader.exec_module(module)


atexit.register(wait_for_gloo)  # registered before all others, so called after them
_customise_as_without_this()
