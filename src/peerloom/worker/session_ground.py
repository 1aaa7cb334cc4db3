"""What a worker's session with the trainer stands on: its event loop, and how it dials."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import partial

from peerloom.kit.channel import open_channel
from peerloom.kit.dialing import Dialer
from peerloom.kit.tasks import end_other_tasks
from peerloom.worker.assignment import Assignment
from peerloom.worker.own_identity import own_identity


def _dialer_of(assignment: Assignment) -> Dialer:
    return Dialer(own_identity(assignment), partial(open_channel, retries=False))


@dataclass(frozen=True)
class SessionGround:
    """The loop is the session's own; a simulation hands in its own, where many share one.

    `dial` is called anew for each attempt, since the agent renews the worker's identity; `end_left` ends
    what gRPC left on the loop when a stream broke.
    """

    loop: asyncio.AbstractEventLoop = field(default_factory=asyncio.new_event_loop)
    dial: Callable[[Assignment], Dialer] = _dialer_of
    end_left: Callable[[], Awaitable[None]] = end_other_tasks
