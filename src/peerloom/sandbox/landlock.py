"""Landlock: the kernel takes files, TCP ports and signals away from this process, and from all it starts.

The numbers are those of linux/landlock.h; each version of its interface (ABI) brought more of them.
"""

import ctypes
import os
import struct
from collections.abc import Iterable

from peerloom.sandbox.grant import FileRights

_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446  # the same on every architecture
_VERSION_FLAG, _BELOW_PATH, _AT_PORT = 1, 1, 2
_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR = (1 << bit for bit in range(4))
_MAKE_CHAR, _MAKE_BLOCK, _REFER, _TRUNCATE, _IOCTL_DEV = 1 << 6, 1 << 11, 1 << 13, 1 << 14, 1 << 15
_FIRST_ABI = (1 << 13) - 1
_FILE_ONLY = _EXECUTE | _WRITE_FILE | _READ_FILE | _TRUNCATE | _IOCTL_DEV
_BIND_TCP = 1
_ABSTRACT_SOCKETS, _SIGNALS = 1, 2
_NO_NEW_PRIVILEGES = 38
_FREE_PORT = 0

_libc = ctypes.CDLL(None, use_errno=True)


def landlock_abi() -> int:
    """The version of the kernel's interface; 0 where there is none, or where it is turned off."""
    version: int = _libc.syscall(_CREATE_RULESET, None, ctypes.c_size_t(0), _VERSION_FLAG)
    return max(0, version)


def give_up_privileges() -> None:
    """From now on no program gains rights by being executed, as set-uid ones do. Raises OSError."""
    _check(_libc.prctl(_NO_NEW_PRIVILEGES, 1, 0, 0, 0))


def restrict(rights: FileRights, abi: int, *, abstract_sockets: bool) -> None:
    """Leaves the calling thread these files, and TCP ports that the kernel chooses to listen at.

    Signals reach its own processes only, and so do abstract Unix sockets unless `abstract_sockets`. Which of
    this holds depends on the kernel's `abi`: from 4 on ports, from 6 on signals and sockets. Needs
    `give_up_privileges` first. Raises OSError.
    """
    files = handled_files(abi)
    scopes = _SIGNALS | (0 if abstract_sockets else _ABSTRACT_SOCKETS)
    ruleset = _create(files, _BIND_TCP if abi >= 4 else 0, scopes if abi >= 6 else 0)
    try:
        read, all_rights = _EXECUTE | _READ_FILE | _READ_DIR, files & ~(_MAKE_CHAR | _MAKE_BLOCK | _IOCTL_DEV)
        _allow(ruleset, rights.reads, read)
        _allow(ruleset, rights.lists, _READ_DIR)
        _allow(ruleset, rights.writes, all_rights)
        _allow(ruleset, rights.devices, files & (_READ_FILE | _WRITE_FILE | _IOCTL_DEV))
        if abi >= 4:
            port = struct.pack("=QQ", _BIND_TCP, _FREE_PORT)
            _check(_libc.syscall(_ADD_RULE, ruleset, _AT_PORT, port, 0))
        _check(_libc.syscall(_RESTRICT_SELF, ruleset, 0))
    finally:
        os.close(ruleset)


def handled_files(abi: int) -> int:
    """The rights to files, as bits, that a kernel of this `abi` can take away."""
    newer = {2: _REFER, 3: _TRUNCATE, 5: _IOCTL_DEV}
    return _FIRST_ABI | sum(right for first, right in newer.items() if abi >= first)


def _create(files: int, ports: int, scopes: int) -> int:
    told = struct.pack("=QQQ", files, ports, scopes)
    # An older kernel takes a longer structure as long as the rest of it is zero.
    return _check(_libc.syscall(_CREATE_RULESET, told, ctypes.c_size_t(len(told)), 0))


def _allow(ruleset: int, paths: Iterable[str], rights: int) -> None:
    for path in paths:
        try:
            descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC)
        except OSError:
            continue  # what isn't there needs no right
        try:
            allowed = rights if os.path.isdir(path) else rights & _FILE_ONLY
            rule = struct.pack("=Qi", allowed, descriptor)
            _check(_libc.syscall(_ADD_RULE, ruleset, _BELOW_PATH, rule, 0))
        finally:
            os.close(descriptor)


def _check(returned: int) -> int:
    if returned < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return returned
