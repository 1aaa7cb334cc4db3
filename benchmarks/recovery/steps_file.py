"""How a rival's worker tells of its committed steps: a file a process, a line a step. Torch is not needed."""

import os
import time
from dataclasses import dataclass
from pathlib import Path


class StepsFile:
    """Written by one worker."""

    def __init__(self, folder: str) -> None:
        self._file = (Path(folder) / f"{os.getpid()}.steps").open("a", buffering=1)

    def commit(self, step: int, members: int) -> None:
        """A step was committed by a group of so many members."""
        self._file.write(f"{time.time()} {step} {members}\n")


@dataclass(frozen=True)
class Committed:
    """One line; `at_s` in seconds since the epoch."""

    pid: int
    at_s: float
    step: int
    members: int


class StepsRead:
    """The steps of all workers, each line read once: who measures shares the cores with who is measured."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._read: dict[Path, int] = {}
        self._steps: list[Committed] = []

    def all(self) -> list[Committed]:
        """All until now, by time."""
        for path in self._folder.glob("*.steps"):
            begin = self._read.get(path, 0)
            with path.open("rb") as file:
                file.seek(begin)
                lines = file.read().rpartition(b"\n")[0]  # behind it, one is just being written
            if lines:
                self._read[path] = begin + len(lines) + 1
                self._steps += (_committed(path, line) for line in lines.decode().splitlines())
        self._steps.sort(key=lambda one: one.at_s)
        return self._steps


def _committed(path: Path, line: str) -> Committed:
    at_s, step, members = line.split()
    return Committed(int(path.stem), float(at_s), int(step), int(members))
