"""What a system in memory changes in the Python process around it, for as long as it is open."""

import logging
import random
from collections.abc import Iterator
from contextlib import contextmanager

import structlog

from peerloom.errors import FailedPreconditionError
from peerloom.kit import backoff, ids, tracing


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Ids and pauses are those of the seed. Raises FailedPreconditionError while this is so already."""
    if not isinstance(ids.entropy, random.SystemRandom):
        raise FailedPreconditionError(
            "another system in memory is open in this process: close it first, or use it for this, too.",
            reason="SYSTEM_OPEN",
        )
    before = ids.entropy
    ids.entropy = random.Random(f"{seed}/ids")
    backoff.pauses.seed(f"{seed}/pauses")
    try:
        yield
    finally:
        ids.entropy = before
        backoff.pauses.seed()


@contextmanager
def untraced() -> Iterator[None]:
    """Nothing is traced: a collector's time is another, and so is the thread that would tell it."""
    before = tracing.use(None)
    try:
        yield
    finally:
        tracing.use(before)


@contextmanager
def silent() -> Iterator[None]:
    """What services log is dropped, unless this process configures structlog itself."""
    if structlog.is_configured():
        yield
        return
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    try:
        yield
    finally:
        structlog.reset_defaults()
