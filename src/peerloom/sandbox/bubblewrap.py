"""bubblewrap around a process: files that it isn't given aren't there for it, nor is others' shared memory.

A second layer around Landlock and seccomp, made of the kernel's namespaces by the program `bwrap`. It can't
be put around a process that runs, so it is put around the one that workers are forked from.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterable, Sequence

from peerloom.sandbox.grant import FileRights, Grant, file_rights
from peerloom.sandbox.readable import gpu_devices, known_interpreter_files, without

_TRY_LIMIT_S = 10.0
# Process ids stay the host's: by them the agent ends workers. The network does too: gloo's peers are there.
_NAMESPACES = ("--unshare-ipc", "--unshare-uts", "--cap-drop", "ALL", "--die-with-parent")


def why_no_bubblewrap() -> str:
    """What keeps `bwrap` from working on this machine, found by trying it; empty when it works. Takes ms."""
    program = shutil.which("bwrap")
    if program is None:
        return "bwrap isn't installed (Debian: apt-get install bubblewrap)"
    command = [*_around(program, Grant(folder="/tmp"), (), ()), "--", sys.executable, "-I", "-S", "-c", ""]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_TRY_LIMIT_S, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"{program} doesn't run: {error}"
    said = done.stderr.strip().splitlines()
    return f"{program} fails: {said[-1] if said else done.returncode}" if done.returncode else ""


def in_bubblewrap(command: Sequence[str], grant: Grant, folders: Iterable[str]) -> list[str]:
    """The command that runs `command` and sees what it and its grant need, and nothing else of this machine.

    It reads what the grant lends and writes in its folder and in `folders`, all of which must be there. Files
    that the command names are seen too. Whatever else its user may, such as root, is gone.
    """
    program = shutil.which("bwrap")
    assert program is not None, "whoever wraps has looked whether it can"
    return [*_around(program, grant, folders, filter(os.path.isfile, command)), "--", *command]


def _around(program: str, grant: Grant, folders: Iterable[str], files: Iterable[str]) -> list[str]:
    python = known_interpreter_files()
    rights = file_rights(grant, (*python.reads, *files), python.lists, gpu_devices() if grant.on_gpu else ())
    view = [*_view(rights, grant), *_pairs("--bind", (grant.folder, *folders))]
    return [program, *_NAMESPACES, *view]


def _view(rights: FileRights, grant: Grant) -> list[str]:
    """Empty folders for temporary files, devices and shared memory; below them what may be read."""
    view = ["--tmpfs", "/tmp", "--dev", "/dev", *_kernel(grant.on_gpu)]
    shown: set[str] = set()
    for path in sorted({path for path in rights.reads if not path.startswith("/proc")}):
        # What lies below a folder that is seen is seen; a link there could not even be bound over.
        seen = _names_of(path, grant.private)
        names = [name for name in seen if not any(_is_below(name, one) for one in shown)]
        view += _pairs("--ro-bind-try", names)
        shown.update(names)
    return [*view, *_pairs("--dev-bind-try", sorted(set(rights.devices)))]


def _kernel(on_gpu: bool) -> list[str]:
    """What it tells of processes and itself: read-only, or root changes settings without any capability.

    Not so for processes where CUDA is: it writes its threads' names there.
    """
    if not on_gpu:
        return ["--ro-bind", "/proc", "/proc"]
    entries = (entry for entry in os.scandir("/proc") if not entry.name.isdigit() and not entry.is_symlink())
    settings = (entry.path for entry in entries if entry.is_dir() or entry.stat().st_mode & 0o222)
    return ["--bind", "/proc", "/proc", *_pairs("--ro-bind-try", sorted(settings))]


def _names_of(path: str, private: str) -> list[str]:
    """Where it is seen: by its own name and, where links lead elsewhere, by that; less what is private."""
    real, shown = os.path.realpath(path), without((path,), private)
    if shown.reads == (real,):
        return sorted({path, real})
    return sorted({*shown.reads, *(path + name.removeprefix(real) for name in shown.reads)})


def _is_below(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder.rstrip("/") + "/")


def _pairs(option: str, paths: Iterable[str]) -> list[str]:
    return [part for path in paths for part in (option, path, path)]
