"""What an error says of a job: that it can't go on anywhere, or not in this slot. Pure."""

import re

import torch

from peerloom.errors import PeerloomError
from peerloom.v1.trainer_pb2 import WorkerFailed

# Of torch's allocators for processors, which raise a bare RuntimeError: on Linux, and elsewhere. Then of the
# system, for a file that is mapped and for a thread, which needs memory too.
_WORDS = (
    "DefaultCPUAllocator: can't allocate memory",
    "DefaultCPUAllocator: not enough memory",
    "Cannot allocate memory",
    "can't start new thread",
)


class UnfitSlotError(Exception):
    """This slot can't do what its node promised; another may."""


def failure_of(error: Exception) -> WorkerFailed:
    """What a worker that can't go on tells the trainer. Another slot may have the memory it lacks."""
    if why := why_too_little(error):
        return WorkerFailed(reason=f"its slot has too little memory for this job: {why}")
    if isinstance(error, UnfitSlotError):
        return WorkerFailed(reason=str(error))
    if isinstance(error, PeerloomError):
        return WorkerFailed(reason=error.message, is_permanent=True)
    return WorkerFailed(reason=f"the task failed: {type(error).__name__}: {error}", is_permanent=True)


def why_too_little(error: BaseException) -> str:
    """What the error, or one that it came of, says of memory, on one line; "": nothing."""
    seen: BaseException | None = error
    while seen is not None:
        if any(words in str(seen) for words in _WORDS):
            asked = re.search(r"allocate (\d+) bytes", str(seen))
            return f"there are no {int(asked[1]):,} bytes more" if asked else _first_line(seen)
        if isinstance(seen, MemoryError | torch.OutOfMemoryError):
            return _first_line(seen)
        seen = seen.__cause__
    return ""


def _first_line(error: BaseException) -> str:
    return (str(error) or type(error).__name__).splitlines()[0]
