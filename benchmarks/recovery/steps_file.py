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


def read_steps(folder: Path) -> list[Committed]:
    """All steps of all workers, by time."""
    found = []
    for path in folder.glob("*.steps"):
        for line in path.read_text().splitlines():
            parts = line.split()
            if len(parts) == 3:  # else it is just being written
                found.append(Committed(int(path.stem), float(parts[0]), int(parts[1]), int(parts[2])))
    return sorted(found, key=lambda one: one.at_s)
