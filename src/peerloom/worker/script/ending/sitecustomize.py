"""Leaves gloo's threads time to lay down what they hold before the interpreter of a script ends.

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

PAUSE_S = 0.25  # a thread that could run gets a processor sooner, on a busy machine too


def leave_gloo_time() -> None:
    """Pauses without the interpreter's lock, which gloo's threads need, where there may be such threads."""
    # Whether they sleep can't be seen: the sandbox shows a script nothing of itself in /proc.
    if "torch.distributed" in sys.modules:
        time.sleep(PAUSE_S)


def _customise_as_without_this() -> None:
    own = os.path.dirname(__file__)
    sys.path[:] = [place for place in sys.path if place != own]
    if (spec := PathFinder.find_spec("sitecustomize")) is not None and spec.loader is not None:
        sys.modules["sitecustomize"] = module = module_from_spec(spec)
        spec.loader.exec_module(module)


atexit.register(leave_gloo_time)  # registered before all others, so called after them
_customise_as_without_this()
