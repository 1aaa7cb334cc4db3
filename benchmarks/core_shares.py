"""cgroups that give processes a part of a core, so that they compute as slower machines do; for root."""

import os
import secrets
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from peerloom.sandbox.cgroup_places import own_folders

# A process stands still for what is left of a period: far shorter than what is measured.
PERIOD_US = 20_000
END_LIMIT_S, END_PAUSE_S = 5.0, 0.01


@contextmanager
def core_shares(shares: Sequence[float]) -> Iterator[list[Path]]:
    """A cgroup for each share, more than 0, of one core; `join` puts processes there. Raises OSError.

    They have to be gone by the end of the block.
    """
    groups: list[Path] = []
    try:
        for share in shares:
            groups.append(_made(share))
        yield groups
    finally:
        for group in groups:
            _remove(group)


def join(group: Path, pid: int) -> None:
    """Moves a process with all its threads there; what it starts from now on is there too."""
    (group / "cgroup.procs").write_text(str(pid))


def why_no_shares() -> str:
    """What keeps this process from making such cgroups, found by trying; empty when nothing does."""
    try:
        with core_shares([0.5]):
            return ""
    except OSError as error:
        return f"no cgroup limits processors here ({error}); it takes root, and the controller cpu"


def _made(share: float) -> Path:
    around = own_folders("cpu")
    if not around:
        raise OSError("no tree of cgroups with the controller cpu is mounted")
    # In version 2 a group with members has no limits below it, but the top has.
    is_v2 = not (around[0] / "cpu.cfs_quota_us").exists() and (around[-1] / "cgroup.controllers").exists()
    parent = around[-1] if is_v2 else around[0]
    if is_v2:
        (parent / "cgroup.subtree_control").write_text("+cpu")
    group = parent / f"peerloom-benchmark-{os.getpid()}-{secrets.token_hex(4)}"
    group.mkdir()
    quota_us = round(share * PERIOD_US)
    # Its weight against others is the most that there is, so that it gets its share also beside them.
    limits = (
        {"cpu.max": f"{quota_us} {PERIOD_US}", "cpu.weight": "10000"}
        if is_v2
        else {
            "cpu.cfs_period_us": str(PERIOD_US),
            "cpu.cfs_quota_us": str(quota_us),
            "cpu.shares": "262144",
        }
    )
    try:
        for name, text in limits.items():
            (group / name).write_text(text)
    except OSError:
        group.rmdir()
        raise
    return group


def _remove(group: Path) -> None:
    deadline_s = time.monotonic() + END_LIMIT_S
    while group.exists() and time.monotonic() < deadline_s:
        with suppress(OSError):  # the last process is being taken down
            group.rmdir()
            return
        time.sleep(END_PAUSE_S)
