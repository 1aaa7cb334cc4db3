"""The kinds of work of the benchmark of unequal workers, and what makes one process slower than others."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol

from benchmarks.core_shares import join
from benchmarks.unequal_task import COMPUTING_BATCH, WAITING_BATCH


class Work(Protocol):
    """`how` it is in words, its `task` with `arguments`, and the samples of a step.

    `groups` are the cgroups of a slow process and then of others; none where a process slows itself.
    """

    @property
    def how(self) -> str: ...

    @property
    def task(self) -> str: ...

    @property
    def arguments(self) -> Mapping[str, str]: ...

    @property
    def batch(self) -> int: ...

    @property
    def groups(self) -> Sequence[Path]: ...

    def limit(self, pids: Sequence[int], *, is_slow: bool) -> None:
        """Has the processes, by rank, compute as fast as they shall; with `is_slow` rank 0 at a third."""


class Waiting:
    """`slow` is a file that workers may read."""

    how = "waiting instead of computing"
    task = "benchmarks.unequal_task:Waiting"
    batch = WAITING_BATCH
    groups: Sequence[Path] = ()

    def __init__(self, slow: Path) -> None:
        self._slow = slow
        self.arguments: Mapping[str, str] = {"slow": str(slow)}

    def limit(self, pids: Sequence[int], *, is_slow: bool) -> None:
        """Names the slow one in the file."""
        self._slow.write_text(str(pids[0]) if is_slow else "")


class Computing:
    """`groups`, of the slow one first, divide the cores."""

    how = "computing in cgroups"
    task = "benchmarks.unequal_task:Computing"
    batch = COMPUTING_BATCH
    arguments: Mapping[str, str] = {}

    def __init__(self, groups: Sequence[Path]) -> None:
        self.groups = groups

    def limit(self, pids: Sequence[int], *, is_slow: bool) -> None:
        """Each process has a group of its own."""
        for pid, group in zip(pids, self.groups if is_slow else self.groups[1:], strict=False):
            join(group, pid)
