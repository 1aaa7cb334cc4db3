"""What the workers tell one another of their clients, in small rows that travel beside the training.

All begin an exchange, and it is there when the last has: who trains looks between two batches, so nobody
waits for longer than a batch of the slowest. All get the same rows, and so decide the same.
"""

from collections.abc import Sequence
from dataclasses import astuple, dataclass
from typing import Protocol

import torch
import torch.distributed as dist

from peerloom.worker.federated.versions import SOUND, Push
from peerloom.worker.group.process_group import Group

NOBODY, IDLE = -1, -1


@dataclass(frozen=True)
class ClientRow:
    """One worker's client by its number, NOBODY without data; the `version` that it works from, or IDLE.

    The rest is of its update once it `is_done`, as in `versions.Push`, with its mean `loss`; and whether the
    worker was asked to leave the group (`leaves`), which all do together then.
    """

    client: int
    version: int = IDLE
    is_done: bool = False
    samples: int = 0
    flaw: int = SOUND
    likeness: float = 1.0
    loss: float = 0.0
    leaves: bool = False

    @property
    def push(self) -> Push:
        """Its update, as it is judged."""
        return Push(self.client, self.version, self.samples, self.likeness, self.flaw)

    @classmethod
    def of(cls, numbers: Sequence[float]) -> "ClientRow":
        """The row of its numbers."""
        client, version, is_done, samples, flaw, likeness, loss, leaves = numbers
        update = (bool(is_done), int(samples), int(flaw), likeness, loss)
        return cls(int(client), int(version), *update, bool(leaves))


class RowsUnderWay(Protocol):
    """An exchange of rows."""

    def are_there(self) -> bool:
        """Whether `result` comes without waiting."""

    def result(self) -> list[ClientRow]:
        """All workers' rows, by rank. Raises what `Group.result` does."""


class GroupRows:
    """An exchange over a group's collectives; this worker tells its `own` row."""

    def __init__(self, group: Group, own: ClientRow) -> None:
        numbers = [float(each) for each in astuple(own)]
        rows = torch.zeros(group.world_size, len(numbers), dtype=torch.float64)
        rows[group.rank] = torch.tensor(numbers, dtype=torch.float64)
        self._rows, self._group = rows.to(group.device), group
        # Each row has one summand that isn't zero.
        is_alone = group.world_size == 1
        self._done = None if is_alone else group.follow(dist.all_reduce(self._rows, async_op=True))

    def are_there(self) -> bool:
        """As the protocol says."""
        return self._done is None or self._done.done()

    def result(self) -> list[ClientRow]:
        """As the protocol says."""
        rows = self._rows if self._done is None else self._group.result(self._done)
        return [ClientRow.of(numbers) for numbers in rows.tolist()]
