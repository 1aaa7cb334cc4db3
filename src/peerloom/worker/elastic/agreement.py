"""What the workers of a loop tell one another with each step: who has left it, and that all do the same."""

from collections.abc import Sequence

import torch
import torch.distributed as dist

from peerloom.errors import FailedPreconditionError, InvalidArgumentError
from peerloom.worker.group.process_group import Group
from peerloom.worker.sync import TensorFuture

Row = tuple[
    int, int, int
]  # whether its script has left; the optimisers that step, as bits; the order's digest


class Agreement:
    """One step's exchange, which travels while gradients are computed."""

    def __init__(self, group: Group, has_left: bool, stepping: frozenset[int], order_digest: int) -> None:
        own: Row = (int(has_left), sum(1 << each for each in stepping), order_digest)
        rows = torch.zeros(group.world_size, len(own), dtype=torch.int64)
        rows[group.rank] = torch.tensor(own)
        self._group = group
        self._rows = rows.to(group.device)
        self._done: TensorFuture | None = None
        if group.world_size > 1:
            self._done = group.follow(dist.all_reduce(self._rows, async_op=True))  # one summand isn't zero

    def goes_on(self, step: int) -> bool:
        """Whether the step, of which `step` came before, counts; False: the loop ends before it.

        Raises InvalidArgumentError where the workers' scripts differ, FailedPreconditionError where nothing
        was trained, and what `Group.result` does.
        """
        if self._done is not None:
            self._rows = self._group.result(self._done)
        return verdict([(int(a), int(b), int(c)) for a, b, c in self._rows.tolist()], step)


def verdict(rows: Sequence[Row], step: int) -> bool:
    """What follows of what all workers said, by `Agreement.goes_on`; raises what that does of its own."""
    if any(has_left for has_left, _, _ in rows):
        if not step:
            raise FailedPreconditionError("The loop was left before its first step: nothing is trained yet.")
        return False
    if len({stepping for _, stepping, _ in rows}) > 1:
        raise InvalidArgumentError(
            f"After step {step} the workers' scripts gave run.step losses of different optimisers. Choose "
            "them by run.steps, which is the same on all workers, and not by a count of your own.",
            reason="OTHER_OPTIMISERS",
        )
    if len({digest for _, _, digest in rows}) > 1:
        raise InvalidArgumentError(
            f"After step {step} the workers' samplers gave different orders of the epoch. Have them draw "
            "from torch's, numpy's or Python's global generators, which are seeded alike before each epoch, "
            "or by the number that set_epoch tells, and remember nothing of the epoch before.",
            reason="OTHER_ORDERS",
        )
    return True
