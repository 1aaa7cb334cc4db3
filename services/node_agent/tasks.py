"""Whether this node could import a task; nothing is imported to find out."""

import importlib
import importlib.util


def is_installed(package: str) -> bool:
    """Whether a top-level package is there."""
    importlib.invalidate_caches()
    try:
        return importlib.util.find_spec(package) is not None
    except (ImportError, ValueError):
        return False


def is_known_task(task: str) -> bool:
    """Whether a task is built in (no ':') or its top-level package is installed here."""
    module, colon, _ = task.partition(":")
    return not colon or is_installed(module.partition(".")[0])
