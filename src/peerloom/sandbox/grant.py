"""What a process that works for others is given, beside the interpreter: a value, decided by its agent."""

import dataclasses
import json
from collections.abc import Iterable, Sequence

# What names, addresses and certificates are found by; no accounts, no keys.
_SYSTEM_READS = (
    "/etc/alternatives",
    "/etc/ca-certificates",
    "/etc/gai.conf",
    "/etc/host.conf",
    "/etc/hosts",
    "/etc/ld.so.cache",
    "/etc/localtime",
    "/etc/nsswitch.conf",
    "/etc/pki/ca-trust",
    "/etc/pki/tls/certs",
    "/etc/protocols",
    "/etc/resolv.conf",
    "/etc/services",
    "/etc/ssl/certs",
    "/etc/ssl/openssl.cnf",
    "/proc/cpuinfo",
    "/proc/meminfo",
    "/proc/stat",
    "/proc/sys/vm",
    "/proc/version",
    "/sys/bus/pci/devices",  # gloo lists what carries its interface, and forms no group if it can't
    "/sys/class/net",
    "/sys/devices",
)
_SYSTEM_DEVICES = ("/dev/full", "/dev/null", "/dev/random", "/dev/urandom", "/dev/zero")
# NVIDIA's driver asks these for its devices; NCCL asks /sys how they hang together.
_GPU_READS = ("/proc/devices", "/proc/driver/nvidia", "/proc/modules", "/proc/sys/kernel", "/sys")


@dataclasses.dataclass(frozen=True)
class Grant:
    """What one process may use besides the interpreter and its packages.

    In `folder` it may do all, its temporary files are made there. It reads what lies below `reads`, except
    below `private`, the agent's own folder. With `on_gpu` it has the NVIDIA devices, shared memory and Unix
    sockets. A file that it writes has at most `file_limit_bytes`, and its private memory grows by at most
    `memory_limit_bytes`; 0: no limit.
    """

    folder: str
    reads: tuple[str, ...] = ()
    private: str = ""
    on_gpu: bool = False
    file_limit_bytes: int = 0
    memory_limit_bytes: int = 0

    @classmethod
    def from_json(cls, text: str) -> "Grant":
        """Reads `to_json`'s text. Raises TypeError or ValueError for another."""
        return cls.from_dict(json.loads(text))

    @classmethod
    def from_dict(cls, told: dict[str, object]) -> "Grant":
        """Reads what `dataclasses.asdict` gave, lists for tuples. Raises TypeError or ValueError."""
        reads = told.get("reads", ())
        if not isinstance(reads, Iterable):
            raise ValueError(f"the folders to read are {reads!r}, but must be a list")
        return cls(**{**told, "reads": tuple(reads)})  # type: ignore[arg-type]  # checked by what it comes from

    def to_json(self) -> str:
        """One line of text."""
        return json.dumps(dataclasses.asdict(self))


@dataclasses.dataclass(frozen=True)
class FileRights:
    """Files and folders, each with what may be done to it and all below it; what isn't there is left out.

    Those in `lists` may be listed only, those in `devices` opened for reading, writing and control.
    """

    reads: tuple[str, ...]
    writes: tuple[str, ...]
    lists: tuple[str, ...]
    devices: tuple[str, ...]


def file_rights(
    grant: Grant, interpreter: Sequence[str], lists: Sequence[str], devices: Sequence[str]
) -> FileRights:
    """All of a process's rights to files.

    `interpreter` and `lists` are what Python has to read and list, `devices` the GPUs' device files.
    """
    return FileRights(
        reads=(*interpreter, *_SYSTEM_READS, *(_GPU_READS if grant.on_gpu else ()), *grant.reads),
        writes=(grant.folder, *(("/dev/shm",) if grant.on_gpu else ())),
        lists=tuple(lists),
        devices=(*_SYSTEM_DEVICES, *(devices if grant.on_gpu else ())),
    )
