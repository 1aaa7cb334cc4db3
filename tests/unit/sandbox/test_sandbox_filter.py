"""The filter of system calls, run here over made-up calls, for both architectures."""

import errno
import socket

import pytest

from peerloom.sandbox.seccomp import Instruction, filter_program

ALLOWED = 0x7FFF_0000
X86, ARM = 0xC000_003E, 0xC000_00B7
# From the kernel's tables: (x86_64, aarch64).
READ, SOCKET, CLONE, IOCTL, PRLIMIT = (0, 63), (41, 198), (56, 220), (16, 29), (302, 261)


def answer(program: list[Instruction], architecture: int, number: int, *arguments: int) -> int:
    """What classic BPF returns for a call."""
    words = {0: number, 4: architecture, **{16 + 8 * at: value for at, value in enumerate(arguments)}}
    accumulator, at = 0, 0
    while True:
        code, if_true, if_false, constant = program[at]
        at += 1
        match code:
            case 0x20:
                accumulator = words.get(constant, 0)
            case 0x54:
                accumulator &= constant
            case 0x15:
                at += if_true if accumulator == constant else if_false
            case 0x35:
                at += if_true if accumulator >= constant else if_false
            case 0x45:
                at += if_true if accumulator & constant else if_false
            case 0x06:
                return constant if constant == ALLOWED else constant & 0xFFFF


def asked(numbers: tuple[int, int], *arguments: int, unix_sockets: bool = False) -> int:
    """The answer, which is the same on both architectures: ALLOWED, or an error's number."""
    answers = {
        answer(filter_program(name, unix_sockets=unix_sockets), architecture, numbers[column], *arguments)
        for column, (name, architecture) in enumerate((("x86_64", X86), ("aarch64", ARM)))
    }
    [found] = answers
    return found


def test_what_it_does_not_name_is_allowed() -> None:
    assert asked(READ) == ALLOWED


@pytest.mark.parametrize(
    "numbers", [(101, 117), (165, 40), (321, 280), (425, 425), (323, 282), (250, 219), (308, 268)]
)
def test_the_kernels_machinery_is_refused(numbers: tuple[int, int]) -> None:
    """ptrace, mount, bpf, io_uring_setup, userfaultfd, keyctl, setns."""
    assert asked(numbers) == errno.EPERM


def test_a_foreign_table_of_calls_is_refused() -> None:
    program = filter_program("x86_64", unix_sockets=False)
    assert answer(program, 0x4000_0003, READ[0]) == errno.EPERM  # i386
    assert answer(program, X86, 0x4000_0000 | READ[0]) == errno.ENOSYS  # x32


@pytest.mark.parametrize(
    ("family", "kind", "protocol", "expected"),
    [
        (socket.AF_INET, socket.SOCK_STREAM, 0, ALLOWED),
        (socket.AF_INET6, socket.SOCK_STREAM | socket.SOCK_CLOEXEC, 6, ALLOWED),
        (socket.AF_INET, socket.SOCK_STREAM, 262, errno.EPERM),  # multipath TCP, which Landlock doesn't see
        (socket.AF_INET, socket.SOCK_DGRAM, 0, errno.EPERM),
        (socket.AF_INET6, socket.SOCK_RAW, 58, errno.EPERM),
        (socket.AF_NETLINK, socket.SOCK_RAW, 0, ALLOWED),  # the table of interfaces and routes
        (socket.AF_NETLINK, socket.SOCK_RAW, 9, errno.EPERM),  # the kernel's audit
        (socket.AF_UNIX, socket.SOCK_STREAM, 0, errno.EPERM),
        (socket.AF_PACKET, socket.SOCK_RAW, 0, errno.EPERM),
        (40, socket.SOCK_STREAM, 0, errno.EPERM),  # to the host of a virtual machine
    ],
)
def test_of_sockets_there_is_tcp(family: int, kind: int, protocol: int, expected: int) -> None:
    assert asked(SOCKET, family, kind, protocol) == expected


def test_nccl_has_unix_sockets_too() -> None:
    assert asked(SOCKET, socket.AF_UNIX, socket.SOCK_DGRAM, 0, unix_sockets=True) == ALLOWED
    assert asked(SOCKET, socket.AF_INET, socket.SOCK_DGRAM, 0, unix_sockets=True) == errno.EPERM


def test_processes_and_threads_are_made_but_no_namespaces() -> None:
    threads, new_user_namespace = 0x003D_0F00, 0x1000_0011
    assert asked(CLONE, threads) == ALLOWED
    assert asked(CLONE, new_user_namespace) == errno.EPERM
    assert asked((435, 435)) == errno.ENOSYS  # clone3


def test_limits_are_a_processs_own() -> None:
    assert asked(PRLIMIT, 0) == ALLOWED
    assert asked(PRLIMIT, 4711) == errno.EPERM


def test_nobody_types_into_a_terminal() -> None:
    assert asked(IOCTL, 0, 0x5401) == ALLOWED  # TCGETS
    assert asked(IOCTL, 0, 0x5412) == errno.EPERM  # TIOCSTI


def test_habits_are_answered_as_if_they_were_done() -> None:
    for numbers in (
        (91, 52),
        (112, 157),
        (109, 154),
        (203, 122),
    ):  # fchmod, setsid, setpgid, sched_setaffinity
        assert asked(numbers) == 0
