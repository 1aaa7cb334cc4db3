"""A job's picture in a notebook's cell, drawn anew as events come."""

import sys
from collections.abc import Iterable
from importlib import import_module
from typing import Any

from peerloom.client.notebook.job_picture import JobPicture
from peerloom.client.types.events import JobEvent
from peerloom.errors import FailedPreconditionError
from peerloom.kit.clock import Clock

DRAW_EVERY_S = 0.5  # a notebook keeps up with few; the last is always drawn


def show_events(job_id: str, events: Iterable[JobEvent], clock: Clock) -> None:
    """Shows the events until they end. Raises FailedPreconditionError outside of IPython."""
    if not _in_ipython():
        raise FailedPreconditionError(
            "A job is shown in a notebook's cell, and here is none. In a terminal: peerloom jobs watch "
            f"{job_id}; in a script: for event in job.watch(): ...",
            reason="NO_NOTEBOOK",
        )
    shown: Any = import_module("IPython.display")
    picture = JobPicture(job_id)
    handle = shown.display(shown.HTML(picture.html()), display_id=True)
    drawn_at_s = clock.monotonic_s()
    try:
        for event in events:
            picture.apply(event)
            if clock.monotonic_s() - drawn_at_s >= DRAW_EVERY_S:
                drawn_at_s = clock.monotonic_s()
                handle.update(shown.HTML(picture.html()))
    finally:
        handle.update(shown.HTML(picture.html()))


def _in_ipython() -> bool:
    # Whoever is in a cell has loaded it; nobody else should have to.
    loaded: Any = sys.modules.get("IPython")
    return loaded is not None and loaded.get_ipython() is not None
