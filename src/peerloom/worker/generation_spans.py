"""A worker's part in a generation as spans of its job's trace; never one a step."""

import time
from contextlib import AbstractContextManager

from peerloom.kit import tracing
from peerloom.v1.trainer_pb2 import ConfigureGeneration


def generation_span(config: ConfigureGeneration) -> AbstractContextManager[None]:
    """The block is this worker's whole part in a generation."""
    about = {"generation": config.generation, "rank": config.rank, "workers": config.world_size}
    return tracing.span("train generation", **about)


class FirstStep:
    """Tells of the first step that a worker commits in a generation, from the moment it can begin."""

    def __init__(self) -> None:
        self._parent, self._begin_s = tracing.traceparent(), time.time()

    def committed(self, step: int) -> None:
        """The worker's state holds so many steps; all but the first call do nothing."""
        if self._parent:
            about = {"step": step}
            tracing.tell(tracing.PastSpan("first step", self._parent, self._begin_s, time.time(), about))
            self._parent = ""
