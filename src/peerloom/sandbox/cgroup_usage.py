"""How much this process's own cgroup may use of the machine, and what it uses, with all that runs in it.

A limit may stand in one's own group or in one around it; the nearest counts.
"""

from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from peerloom.sandbox.cgroup_places import own_folders

_UNLIMITED_BYTES = 2**60  # version 1 writes a number near 2**63 for "no limit"


@dataclass(frozen=True)
class CpuLimit:
    """So many `cores` may be used at once, of which `used_s` seconds were used so far."""

    cores: float
    used_s: float


@dataclass(frozen=True)
class MemoryLimit:
    """So many bytes may be used; `used_bytes` are, without what the kernel keeps of files and could drop."""

    limit_bytes: int
    used_bytes: int


def cpu_limit() -> CpuLimit | None:
    """The nearest limit of this process's processor time; None where there is none, or it can't be read."""
    with suppress(OSError, ValueError):
        return cpu_limit_of(own_folders("cpu"))
    return None


def memory_limit() -> MemoryLimit | None:
    """The nearest limit of this process's memory; None where there is none, or it can't be read."""
    with suppress(OSError, ValueError):
        return memory_limit_of(own_folders("memory"))
    return None


def cpu_limit_of(folders: Iterable[Path]) -> CpuLimit | None:
    """The first limit of these groups, of either version. Raises OSError or ValueError where unreadable."""
    for folder in folders:
        if (folder / "cpu.max").exists():
            quota, period = (folder / "cpu.max").read_text().split()
            if quota != "max":
                used_s = int(_counts(folder / "cpu.stat")["usage_usec"]) / 1e6
                return CpuLimit(int(quota) / int(period), used_s)
        elif (folder / "cpu.cfs_quota_us").exists():
            quota_us = _number(folder / "cpu.cfs_quota_us")
            if quota_us > 0:
                used_s = _number(folder / "cpuacct.usage") / 1e9
                return CpuLimit(quota_us / _number(folder / "cpu.cfs_period_us"), used_s)
    return None


def memory_limit_of(folders: Iterable[Path]) -> MemoryLimit | None:
    """The first limit of these groups, of either version. Raises OSError or ValueError where unreadable."""
    for folder in folders:
        if (folder / "memory.max").exists():
            limit, current, cached = "memory.max", "memory.current", "inactive_file"
        elif (folder / "memory.limit_in_bytes").exists():
            limit, current = "memory.limit_in_bytes", "memory.usage_in_bytes"
            cached = "total_inactive_file"
        else:
            continue
        text = (folder / limit).read_text().strip()
        if text != "max" and int(text) < _UNLIMITED_BYTES:
            kept = int(_counts(folder / "memory.stat").get(cached, "0"))
            return MemoryLimit(int(text), max(0, _number(folder / current) - kept))
    return None


def _number(file: Path) -> int:
    return int(file.read_text())


def _counts(file: Path) -> Mapping[str, str]:
    words = file.read_text().split()
    return dict(zip(words[::2], words[1::2], strict=False))
