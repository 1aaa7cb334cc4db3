"""seccomp: a filter in the kernel that refuses system calls, for this process and all that it starts.

The filter is a program of classic BPF over `struct seccomp_data` (linux/seccomp.h): the call's number, the
architecture, and six arguments, of which it reads the lower halves. Pointers can't be followed, so no path
and no address decides here.
"""

import ctypes
import errno
import os
import platform
import socket
import struct

from peerloom.sandbox.system_calls import SystemCalls

Instruction = tuple[int, int, int, int]  # code, jump if true, jump if false, constant

_LOAD, _JUMP_EQUAL, _JUMP_AT_LEAST, _JUMP_ANY_BIT, _AND, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x54, 0x06
_NUMBER_AT, _ARCHITECTURE_AT, _ARGUMENTS_AT = 0, 4, 16
_FOREIGN_CALLS = 0x4000_0000  # x86_64 has a second table of calls (x32) from here on
_NEW_NAMESPACES = 0x7E02_0000  # clone's flags for user, mount, network and other namespaces
_KINDS_OF_SOCKET = 0xF  # without the flags that come with them
_TYPE_INTO_TERMINAL = (0x5412, 0x541C)  # TIOCSTI, TIOCLINUX
# audit.h's numbers of machines: each with the column of its system calls.
_MACHINES = {"x86_64": (0xC000_003E, 0), "aarch64": (0xC000_00B7, 1)}
_SET_FILTER, _SYNCHRONISE, _NO_SPECULATION_LIMIT = 1, 1, 4
_NUMBER_OF_SECCOMP = {"x86_64": 317, "aarch64": 277}
_GET_ACTION_AVAIL = 2
_ERRNO_ACTION = 0x0005_0000

_ALLOW: Instruction = (_RETURN, 0, 0, 0x7FFF_0000)
_libc = ctypes.CDLL(None, use_errno=True)


def _answer(number: int) -> Instruction:
    return _RETURN, 0, 0, _ERRNO_ACTION | number


_REFUSE, _PRETEND, _UNKNOWN = _answer(errno.EPERM), _answer(0), _answer(errno.ENOSYS)


def seccomp_is_there() -> bool:
    """Whether the kernel takes such a filter, and this machine's system calls are known here."""
    number = _NUMBER_OF_SECCOMP.get(platform.machine())
    if number is None:
        return False
    action = ctypes.c_uint32(_ERRNO_ACTION)
    found: int = _libc.syscall(number, _GET_ACTION_AVAIL, 0, ctypes.byref(action))
    return found == 0


def restrict_calls(*, unix_sockets: bool) -> None:
    """Puts the filter on all threads of this process. Needs `give_up_privileges` first. Raises OSError."""
    machine = platform.machine()
    program = filter_program(machine, unix_sockets=unix_sockets)
    packed = ctypes.create_string_buffer(b"".join(struct.pack("=HBBI", *line) for line in program))
    described = struct.pack("@HP", len(program), ctypes.addressof(packed))
    flags = _SYNCHRONISE | _NO_SPECULATION_LIMIT
    if _libc.syscall(_NUMBER_OF_SECCOMP[machine], _SET_FILTER, flags, described) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def filter_program(machine: str, *, unix_sockets: bool) -> list[Instruction]:
    """The filter for "x86_64" or "aarch64"; it allows what it doesn't name."""
    architecture, column = _MACHINES[machine]
    calls = SystemCalls(column)
    program = [(_LOAD, 0, 0, _ARCHITECTURE_AT), (_JUMP_EQUAL, 1, 0, architecture), _REFUSE]
    program += [(_LOAD, 0, 0, _NUMBER_AT), (_JUMP_AT_LEAST, 0, 1, _FOREIGN_CALLS), _UNKNOWN]
    for number in calls.refused:
        program += _when(number, [_REFUSE])
    for number in calls.pretended:
        program += _when(number, [_PRETEND])
    for number, argument in calls.own:
        program += _when(number, [_load(argument), *_when(0, [_ALLOW]), _REFUSE])
    # Its flags lie in memory, where nobody can look: C libraries then fall back to clone.
    program += _when(calls.clone3, [_UNKNOWN])
    program += _when(calls.clone, [_load(0), (_JUMP_ANY_BIT, 0, 1, _NEW_NAMESPACES), _REFUSE, _ALLOW])
    typing = [line for request in _TYPE_INTO_TERMINAL for line in _when(request, [_REFUSE])]
    program += _when(calls.ioctl, [_load(1), *typing, _ALLOW])
    program += _when(calls.socket, _sockets(unix_sockets))
    program += _when(calls.socketpair, [_load(0), *_when(socket.AF_UNIX, [_ALLOW]), _REFUSE])
    return [*program, _ALLOW]


def _sockets(unix_sockets: bool) -> list[Instruction]:
    """TCP, and netlink's table of interfaces and routes, by which gloo finds its interface."""
    plain_tcp = [_load(2), *_when(0, [_ALLOW]), *_when(socket.IPPROTO_TCP, [_ALLOW]), _REFUSE]
    stream = [_load(1), (_AND, 0, 0, _KINDS_OF_SOCKET), *_when(socket.SOCK_STREAM, plain_tcp), _REFUSE]
    routes = [_load(2), *_when(0, [_ALLOW]), _REFUSE]
    program = [_load(0), *_when(socket.AF_INET, stream), *_when(socket.AF_INET6, stream)]
    program += _when(socket.AF_NETLINK, routes)
    return [*program, *(_when(socket.AF_UNIX, [_ALLOW]) if unix_sockets else []), _REFUSE]


def _load(argument: int) -> Instruction:
    return _LOAD, 0, 0, _ARGUMENTS_AT + 8 * argument


def _when(value: int, block: list[Instruction]) -> list[Instruction]:
    """Goes into the block, which ends with an answer, for this value; else on behind it."""
    return [(_JUMP_EQUAL, 0, len(block), value), *block]
