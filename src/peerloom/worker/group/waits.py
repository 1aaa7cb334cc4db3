"""Waits for collectives that another thread can end, whatever the library below them does.

Gloo may go on waiting after its connections were shut down: a send that meets a closed one hangs until the
group's time limit. So nobody waits for gloo itself. Each collective gets a future of ours, which completes
with it or with the break, whichever comes first; what gloo still does then happens to tensors that nobody
uses any more.
"""

import threading
from typing import Any

import torch
import torch.distributed as dist

# What it completes with: the collective's tensor, or the reason why there is none. Not an exception: torch's
# futures would hold its traceback, and that the future, where no garbage collection sees it.
TensorFuture = torch.futures.Future[torch.Tensor | str]
_CPU = torch.device("cpu")


def future_on(device: torch.device) -> "torch.futures.Future[Any]":
    """One for tensors on this device. On a GPU whoever waits for it has its stream wait too."""
    return torch.futures.Future(devices=[device] if device.type == "cuda" else None)


class GenerationBrokenError(Exception):
    """The group can't go on: a peer went away, or the trainer asked to leave."""


class Waits:
    """The collectives of one group that are under way. Any thread may call any method.

    Their tensors are on `device`, or on the processor.
    """

    def __init__(self, device: torch.device = _CPU) -> None:
        self._device = device
        self._lock = threading.Lock()
        self._open: set[TensorFuture] = set()
        self._running = 0
        self._reason = ""
        self.quiet = threading.Event()
        self.quiet.set()

    def follow(self, work: dist.Work) -> TensorFuture:
        """A future of the collective's tensor, which a break completes with its reason."""
        future: TensorFuture = future_on(self._device)
        with self._lock:
            self._open.add(future)
            self._running += 1
            self.quiet.clear()
            reason = self._reason
        work.get_future().add_done_callback(lambda done: self._end(future, done))
        if reason:
            self.break_all(reason)
        return future

    def break_all(self, reason: str) -> None:
        """Ends all waits, those to come too."""
        with self._lock:
            self._reason = self._reason or reason
            broken, self._open = self._open, set()
        for future in broken:
            future.set_result(self._reason)

    def _end(self, future: TensorFuture, done: torch.futures.Future[list[torch.Tensor]]) -> None:
        with self._lock:
            is_ours = future in self._open
            self._open.discard(future)
            self._running -= 1
            if not self._running:
                self.quiet.set()
        if not is_ours:
            return  # the break came first
        try:
            future.set_result(done.value()[0])
        except RuntimeError as error:
            future.set_result(str(error))
