"""Confines the calling process to its grant, for good."""

import dataclasses
import os
import tempfile

from peerloom.sandbox.grant import FileRights, Grant, file_rights
from peerloom.sandbox.kernel_support import SandboxSupport, find_support
from peerloom.sandbox.landlock import give_up_privileges, restrict
from peerloom.sandbox.readable import gpu_devices, known_interpreter_files, without
from peerloom.sandbox.resource_limits import limit_resources
from peerloom.sandbox.seccomp import restrict_calls


def confine(grant: Grant, support: SandboxSupport | None = None) -> None:
    """Takes all from this process that it isn't given, as far as the kernel can: see `SandboxSupport`.

    Call it while there is one thread, as Landlock holds for the calling one and those that it starts. Raises
    OSError where the kernel refuses what it said it could.
    """
    support = support or find_support()
    temporary_files_in(grant.folder)
    rights = rights_of(grant)
    limit_resources(grant.file_limit_bytes, grant.memory_limit_bytes)
    give_up_privileges()
    if support.landlock_abi:
        restrict(rights, support.landlock_abi, abstract_sockets=grant.on_gpu)
    if support.seccomp:
        restrict_calls(unix_sockets=grant.on_gpu)


def temporary_files_in(folder: str) -> None:
    """Temporary files and caches are made there, also by a library that has asked for their place before."""
    tempfile.tempdir = folder
    # Torch keeps the place that it found at its import, before the fork, in the last of these.
    for name in ("TMPDIR", "XDG_CACHE_HOME", "TORCHINDUCTOR_CACHE_DIR"):
        os.environ[name] = folder


def rights_of(grant: Grant) -> FileRights:
    """The grant, the interpreter, and this process's own entry in /proc, without what is private."""
    python = known_interpreter_files()
    reads = without((*python.reads, f"/proc/{os.getpid()}"), grant.private)
    given = without(grant.reads, grant.private)
    lists = (*python.lists, *reads.lists, *given.lists)
    devices = gpu_devices() if grant.on_gpu else []
    shown = Grant(grant.folder, given.reads, grant.private, grant.on_gpu)
    rights = file_rights(shown, reads.reads, lists, devices)
    return dataclasses.replace(rights, writes=(*rights.writes, _processes())) if grant.on_gpu else rights


def _processes() -> str:
    """Where CUDA writes the names of its threads; it doesn't begin where it can't.

    Below it those that this one starts have theirs too, unless it could change the kernel's settings there.
    """
    could_change = os.access("/proc/sys/kernel/core_pattern", os.W_OK)
    return f"/proc/{os.getpid()}" if could_change else "/proc"
