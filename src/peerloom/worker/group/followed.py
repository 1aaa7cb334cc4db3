"""A process group for DDP's own collectives, whose waits end with the generation like all others.

DDP broadcasts buffers before a forward pass, and once in a generation the order of its buckets. It waits for
both inside the library, where a break doesn't reach: the training thread would sit there until the group's
time limit.
"""

from datetime import timedelta

import torch
import torch.distributed as dist

from peerloom.worker.group.waits import TensorFuture, Waits


class _FollowedWork(dist.Work):
    """A collective that is over when the future is, which a break completes."""

    def __init__(self, future: TensorFuture) -> None:
        super().__init__()
        self._future = future

    def wait(self, timeout: timedelta = timedelta()) -> bool:
        """Waits for the collective or the break. Raises RuntimeError with what went wrong."""
        result = self._future.wait()
        if isinstance(result, str):
            raise RuntimeError(result)
        return True


class FollowedGroup(dist.ProcessGroup):
    """The members of `inner`, with the one collective that DDP starts by itself.

    DDP may outlive the generation in the traceback of an exception. It keeps this object then, and not
    `inner`, whose last holder waits for its threads: with Python's lock, where that holder is DDP.
    """

    def __init__(self, inner: dist.ProcessGroup, waits: Waits) -> None:
        super().__init__(inner.rank(), inner.size())  # type: ignore[call-arg]  # torch has this one too
        self._inner: dist.ProcessGroup | None = inner
        self._waits = waits

    def getBackendName(self) -> str:  # noqa: N802  # torch's name
        """How torch's messages call it."""
        return "followed"

    def broadcast(  # type: ignore[override]  # of torch's two ways, the one that DDP uses
        self, tensors: list[torch.Tensor], opts: dist.BroadcastOptions
    ) -> dist.Work:
        """Begins a broadcast of `inner`. Raises RuntimeError once the group was left."""
        if self._inner is None:
            raise RuntimeError("This process group was left; its collectives are over.")
        return _FollowedWork(self._waits.follow(self._inner.broadcast(tensors, opts)))

    def leave(self) -> None:
        """Lets go of `inner`."""
        self._inner = None
