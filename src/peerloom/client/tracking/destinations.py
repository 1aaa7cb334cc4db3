"""Where a job is tracked, as users write it: tensorboard:DIR, mlflow:URI, wandb:PROJECT[?mode=offline]."""

import re
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Protocol
from urllib.parse import parse_qsl

from peerloom.client.tracking.track_entries import TrackEntry
from peerloom.client.types import Job
from peerloom.errors import FailedPreconditionError, InvalidArgumentError

_PACKAGES = {"tensorboard": "tensorboard", "mlflow": "mlflow-skinny", "wandb": "wandb"}
_FORM = "tensorboard:DIR, mlflow:URI or wandb:PROJECT[?mode=offline]"
_MODES = ("online", "offline")


class Tracker(Protocol):
    """One job's run at one place. Every method may block, and raise whatever its library does.

    Whoever had an exception of it makes another one, which begins anew.
    """

    def begin(self, job: Job) -> int:
        """Begins the job's run, or takes it up; the sequence number of the last event that it holds."""

    def write(self, job: Job, entries: Sequence[TrackEntry], chronicle: str) -> None:
        """Adds entries, which are kept once it returns; `chronicle` is what happened up to them, in lines."""

    def finish(self, job: Job) -> None:
        """The job has ended."""

    def release(self) -> None:
        """Lets go of files and connections; the run can be taken up again."""


def tracker_for(place: str) -> Tracker:
    """A tracker for a place like mlflow:sqlite:///runs.db, which isn't reached yet.

    Raises InvalidArgumentError for another form, FailedPreconditionError where its library is missing.
    """
    kind, _, rest = place.partition(":")
    if kind not in _PACKAGES or not rest:
        raise InvalidArgumentError.of_field("track", shown(place), _FORM)
    project, _, query = rest.partition("?")
    options = dict(parse_qsl(query, keep_blank_values=True)) if kind == "wandb" else {}
    mode = options.pop("mode", "online")
    if mode not in _MODES or options or not project:
        raise InvalidArgumentError.of_field(
            "track", shown(place), "wandb:PROJECT or wandb:PROJECT?mode=offline"
        )
    if find_spec(kind) is None:
        raise FailedPreconditionError(
            f"{kind} isn't installed here. Get it with: pip install 'peerloom[track]' (or {_PACKAGES[kind]} "
            "alone).",
            reason="TRACKER_MISSING",
        )
    # Each brings its library only when it is used: some take seconds.
    if kind == "tensorboard":
        from peerloom.client.tracking.tensorboard_tracker import TensorboardTracker

        return TensorboardTracker(Path(rest).expanduser())
    if kind == "mlflow":
        from peerloom.client.tracking.mlflow_tracker import MlflowTracker

        return MlflowTracker(rest)
    from peerloom.client.tracking.wandb_tracker import WandbTracker

    return WandbTracker(project, offline=mode == "offline")


def shown(place: str) -> str:
    """The place without the name and password that a URI in it may have."""
    return without_secret(place, place)


def without_secret(text: str, place: str) -> str:
    """A text about a place, without its name and password."""
    found = re.search(r"://([^/@]+@)", place)
    return text.replace(found[1], "") if found else text
