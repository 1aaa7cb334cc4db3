"""Which system calls a confined process has no use for, and their numbers.

What Landlock can't see: other kinds of sockets than TCP, other processes' memory and priorities, the kernel's
own machinery. The numbers are those of the kernel's tables (arch/x86/entry/syscalls/syscall_64.tbl, and
include/uapi/asm-generic/unistd.h for 64-bit Arm); a call that an architecture doesn't have is None.
"""

# name: (x86_64, aarch64)
_REFUSED: dict[str, tuple[int | None, int | None]] = {
    "acct": (163, 89),
    "add_key": (248, 217),
    "adjtimex": (159, 171),
    "bpf": (321, 280),
    "chown": (92, None),
    "chroot": (161, 51),
    "clock_adjtime": (305, 266),
    "clock_settime": (227, 112),
    "delete_module": (176, 106),
    "fanotify_init": (300, 262),
    "fchown": (93, 55),
    "fchownat": (260, 54),
    "finit_module": (313, 273),
    "fremovexattr": (199, 16),
    "fsconfig": (431, 431),
    "fsmount": (432, 432),
    "fsopen": (430, 430),
    "fsetxattr": (190, 7),
    "fspick": (433, 433),
    "init_module": (175, 105),
    "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427),
    "io_uring_setup": (425, 425),
    "ioperm": (173, None),
    "iopl": (172, None),
    "kcmp": (312, 272),
    "kexec_file_load": (320, 294),
    "kexec_load": (246, 104),
    "keyctl": (250, 219),
    "lchown": (94, None),
    "lremovexattr": (198, 15),
    "lsetxattr": (189, 6),
    "migrate_pages": (256, 238),
    "modify_ldt": (154, None),
    "mount": (165, 40),
    "mount_setattr": (442, 442),
    "move_mount": (429, 429),
    "move_pages": (279, 239),
    "mq_open": (240, 180),
    "msgget": (68, 186),
    "msgrcv": (70, 188),
    "msgsnd": (69, 189),
    "name_to_handle_at": (303, 264),
    "open_by_handle_at": (304, 265),
    "open_tree": (428, 428),
    "perf_event_open": (298, 241),
    "personality": (135, 92),
    "pidfd_getfd": (438, 438),
    "pivot_root": (155, 41),
    "process_madvise": (440, 440),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "ptrace": (101, 117),
    "quotactl": (179, 60),
    "quotactl_fd": (443, 443),
    "reboot": (169, 142),
    "removexattr": (197, 14),
    "removexattrat": (466, 466),
    "request_key": (249, 218),
    "semget": (64, 190),
    "semop": (65, 193),
    "setdomainname": (171, 162),
    "sethostname": (170, 161),
    "setns": (308, 268),
    "settimeofday": (164, 170),
    "setxattr": (188, 5),
    "setxattrat": (463, 463),
    "shmat": (30, 196),
    "shmget": (29, 194),
    "swapoff": (168, 225),
    "swapon": (167, 224),
    "syslog": (103, 116),
    "umount2": (166, 39),
    "unshare": (272, 97),
    "userfaultfd": (323, 282),
    "vhangup": (153, 58),
}
# Answered as if they were done: programs call them by habit, and would fail without need. A process stays in
# its worker's session and group, with which it is ended, and on the cores that its owner lends.
_PRETENDED: dict[str, tuple[int | None, int | None]] = {
    "chmod": (90, None),
    "fchmod": (91, 52),
    "fchmodat": (268, 53),
    "fchmodat2": (452, 452),
    "sched_setaffinity": (203, 122),
    "setpgid": (109, 154),
    "setsid": (112, 157),
}
# For the process itself (0) only: which argument names the process.
_OWN: dict[str, tuple[int, tuple[int, int]]] = {
    "ioprio_set": (1, (251, 30)),
    "prlimit64": (0, (302, 261)),
    "sched_setattr": (0, (314, 274)),
    "sched_setparam": (0, (142, 118)),
    "sched_setscheduler": (0, (144, 119)),
    "setpriority": (1, (141, 140)),
}
_CLONE, _CLONE3, _IOCTL, _SOCKET, _SOCKETPAIR = (56, 220), (435, 435), (16, 29), (41, 198), (53, 199)


class SystemCalls:
    """The numbers of one architecture: `column` 0 is x86_64, 1 is aarch64."""

    def __init__(self, column: int) -> None:
        self.refused = _numbers(_REFUSED, column)
        self.pretended = _numbers(_PRETENDED, column)
        self.own = [(numbers[column], argument) for argument, numbers in _OWN.values()]
        self.clone, self.clone3, self.ioctl = _CLONE[column], _CLONE3[column], _IOCTL[column]
        self.socket, self.socketpair = _SOCKET[column], _SOCKETPAIR[column]


def _numbers(table: dict[str, tuple[int | None, int | None]], column: int) -> list[int]:
    return [number for numbers in table.values() if (number := numbers[column]) is not None]
