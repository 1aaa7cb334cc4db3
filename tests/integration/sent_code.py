"""A task that a job brings along as code, and the table it reads."""

from pathlib import Path

TASK = """
from pathlib import Path

import torch
from peerloom.worker.task import Split, Task


class Sent(Task):
    epochs = 1

    def __init__(self, table: str) -> None:
        self.table = Path(table)

    def model(self) -> torch.nn.Module:
        return torch.nn.Linear(2, 2)

    def data(self) -> tuple[Split, Split]:
        lines = self.table.read_text().splitlines()
        points = torch.tensor([[float(x) for x in line.split()] for line in lines])
        split = Split(points, (points[:, 0] > points[:, 1]).long())
        return split, split
"""


def write_code(folder: Path) -> Path:
    """A new folder with the task's module, `sent_along`."""
    folder.mkdir()
    (folder / "sent_along.py").write_text(TASK)
    return folder


def write_table(path: Path) -> Path:
    """A file with 70 points."""
    path.write_text("".join(f"{i % 7} {i % 5}\n" for i in range(70)))
    return path
