"""What an error says of a job: that it can't go on anywhere, or not in this slot. Pure."""

import re

import torch

from peerloom.errors import DeadlineError, PeerloomError, ResourceExhaustedError, UnavailableError
from peerloom.v1.trainer_pb2 import WorkerFailed

# Of torch's allocators for processors, which raise a bare RuntimeError: on Linux, and elsewhere. Then of the
# system, for a file that is mapped and for a thread, which needs memory too.
_WORDS = (
    "DefaultCPUAllocator: can't allocate memory",
    "DefaultCPUAllocator: not enough memory",
    "Cannot allocate memory",
    "can't start new thread",
)
# Of the system, also where a library that isn't Python passes its words on. The last is of a sandbox, which
# lets no file grow beyond what its node keeps.
_FULL_WORDS = ("No space left on device", "Disk quota exceeded", "File too large")


# Somebody is away, the worker's own agent as a rule: no fault of the job's nor of the slot's. The worker ends
# as if it had died, so that others go on, and its node may be asked again.
CUT_OFF = (UnavailableError, DeadlineError)


class UnfitSlotError(Exception):
    """This slot can't do what its node promised; another may."""


def failure_of(error: Exception) -> WorkerFailed:
    """What a worker that can't go on tells the trainer. Another slot may have the room it lacks."""
    if why := why_unfit(error):
        return WorkerFailed(reason=why)
    if isinstance(error, UnfitSlotError | ResourceExhaustedError):  # the latter: its agent has no room, say
        return WorkerFailed(reason=str(error))
    if isinstance(error, PeerloomError):
        return WorkerFailed(reason=error.message, is_permanent=True)
    return WorkerFailed(reason=f"the task failed: {type(error).__name__}: {error}", is_permanent=True)


def why_unfit(error: BaseException) -> str:
    """What the error, or one that it came of, says of this slot's memory or disk, a line; "": nothing."""
    seen: BaseException | None = error
    while seen is not None:
        if why := _why_too_little(seen):
            return f"its slot has too little memory for this job: {why}"
        if any(words in str(seen) for words in _FULL_WORDS):
            return f"its disk has too little room for this job: {_first_line(seen)}"
        seen = seen.__cause__
    return ""


def _why_too_little(error: BaseException) -> str:
    if any(words in str(error) for words in _WORDS):
        asked = re.search(r"allocate (\d+) bytes", str(error))
        return f"there are no {int(asked[1]):,} bytes more" if asked else _first_line(error)
    return _first_line(error) if isinstance(error, MemoryError | torch.OutOfMemoryError) else ""


def _first_line(error: BaseException) -> str:
    return (str(error) or type(error).__name__).splitlines()[0]
