"""Which of a node's own files a training may read: those below the folders that the node's owner lends."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from peerloom.errors import PermissionDeniedError
from peerloom.kit.elastic_scripts import SCRIPT_TASK
from peerloom.kit.job_inputs import digest_in
from peerloom.worker.tasks.built_in import BUILT_IN


def path_arguments(task: str, arguments: Mapping[str, str]) -> dict[str, str]:
    """The arguments that name a file or folder of the node, by their names.

    A built-in task says which they are. Of others, all that read like one: absolute, of somebody's home,
    going up, or naming what is there. That an elastic script's path is there too says nothing: it is one in
    the job's code.
    """
    entry = BUILT_IN.get(task)
    if entry is None:
        is_script = task == SCRIPT_TASK
        return {
            name: value
            for name, value in arguments.items()
            if _reads_like_path(value) or (not is_script and _is_there(value))
        }
    given = {name: value for name, value in arguments.items() if name in entry.paths and not digest_in(value)}
    return {name: value for name, value in given.items() if value or name in entry.required}


def lent_path(value: str, roots: Sequence[str]) -> Path | None:
    """The file or folder that `value` names, links followed; None when it isn't below one of the `roots`."""
    try:
        real = Path(os.path.realpath(Path(value).expanduser()))
    except (ValueError, RuntimeError, OSError):  # a NUL, nobody's home, a loop of links
        return None
    return real if any(real.is_relative_to(os.path.realpath(root)) for root in roots) else None


def foreign_paths(task: str, arguments: Mapping[str, str], roots: Sequence[str]) -> dict[str, str]:
    """The arguments that name what isn't below one of the `roots`, by their names."""
    named = path_arguments(task, arguments)
    return {name: value for name, value in named.items() if lent_path(value, roots) is None}


def inside(folder: Path, path: Path) -> Path:
    """The `path` in the `folder`. Raises PermissionDeniedError for a link that leads out of it."""
    if path.resolve().is_relative_to(folder.resolve()):
        return path
    raise PermissionDeniedError(
        f"{path} is a link to {path.resolve()}, outside of the folder {folder}, so it isn't read. Put the "
        "file itself there.",
        reason="DATA_OUTSIDE",
    )


def _reads_like_path(value: str) -> bool:
    if not value or digest_in(value):
        return False
    return value.startswith(("/", "~", "file:")) or ".." in value.split("/")


def _is_there(value: str) -> bool:
    return bool(value) and not digest_in(value) and os.path.lexists(value)
