"""A bucket of gradients on its way to the sum over all ranks, which may be taken before others come."""

from collections.abc import Callable, Sequence

import torch

from peerloom.worker.sync import TensorFuture
from peerloom.worker.sync.bucket_layout import Layout


class ComingSum:
    """The sum has come with all of `done`; `put` waits for them, and leaves it in the bucket."""

    def __init__(self, layout: Layout, done: Sequence[TensorFuture], put: Callable[[], None]) -> None:
        self.layout = layout
        self.done = done
        self._put = put
        self._is_taken = False

    @property
    def parameters(self) -> list[torch.Tensor]:
        """Those whose gradients are in the bucket."""
        return [parameter for parameter, _, _, _ in self.layout.places]

    def has_come(self) -> bool:
        """Whether `take` needs no waiting."""
        return all(one.done() for one in self.done)

    def take(self) -> None:
        """Leaves the sum in the bucket, if it isn't there. Raises what `Collectives.result` does."""
        if not self._is_taken:
            self._put()
            self._is_taken = True


def take_all(under_way: list[ComingSum]) -> None:
    """Takes the sums that weren't taken yet, and empties the list. Raises as `ComingSum.take`."""
    for coming in under_way:
        coming.take()
    under_way.clear()
