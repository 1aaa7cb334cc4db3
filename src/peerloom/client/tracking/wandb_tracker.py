"""Weights & Biases: the run's id is the job's, so that whoever comes later takes up the same run."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from peerloom.client.tracking.track_entries import TrackEntry, ending_of, parameters_of
from peerloom.client.types import Job

if TYPE_CHECKING:
    import wandb

# The event's sequence number is a figure among others: the run's summary then says how far it was told.
SEQUENCE, STEP, STATE = "event", "step", "state"


class WandbTracker:
    """Writes to a project, as ENTITY/PROJECT or PROJECT; `offline` to a folder below WANDB_DIR instead."""

    def __init__(self, project: str, *, offline: bool) -> None:
        entity, _, self._project = project.rpartition("/")
        self._entity, self._offline = entity or None, offline
        self._run: wandb.Run | None = None
        self._told: Path | None = None

    def begin(self, job: Job) -> int:
        """Takes up the run, or begins it."""
        if not self._offline:
            summary: Any = self._opened(job).summary  # untyped, as the config is
            return int(summary.get(SEQUENCE) or 0)
        self._told = _folder() / "wandb" / f"peerloom-{job.id}.told"
        try:
            return int(self._told.read_text())
        except FileNotFoundError:
            return 0

    def write(self, job: Job, entries: Sequence[TrackEntry], chronicle: str) -> None:
        """Logs a row for each entry."""
        run = self._opened(job)
        config: Any = run.config
        config.update(parameters_of(job), allow_val_change=True)
        run.summary[STATE] = ending_of(job)
        for entry in entries:
            run.log({SEQUENCE: entry.sequence, STEP: entry.step, **entry.figures})
        if chronicle:
            run.notes = chronicle
        if self._told is not None:
            self._told.write_text(str(entries[-1].sequence))

    def finish(self, job: Job) -> None:
        """Marks the run as finished, or as failed."""
        if self._run is not None:
            self._run.summary[STATE] = ending_of(job)
            run, self._run = self._run, None
            run.finish(exit_code=0 if job.state == "succeeded" else 1)

    def release(self) -> None:
        """Ends the run for now."""
        run, self._run = self._run, None
        if run is not None:
            run.finish(exit_code=0)

    def _opened(self, job: Job) -> "wandb.Run":
        if self._run is None:
            import wandb

            self._run = wandb.init(
                entity=self._entity,
                project=self._project,
                id=job.id,
                name=f"{job.spec.name} {job.id}".strip(),
                dir=_folder(),
                mode="offline" if self._offline else "online",
                resume="allow",
                reinit="create_new",
                settings=wandb.Settings(**_QUIET),
            )
            self._run.define_metric(STEP)
            # Steps that are made again, and events between steps, have no place on an axis that only grows.
            self._run.define_metric("*", step_metric=STEP)
        return self._run


# What is watched is a job elsewhere: nothing of this process, its code or this machine belongs to it.
_QUIET: dict[str, Any] = {
    "console": "off",
    "silent": True,
    "disable_code": True,
    "disable_git": True,
    "x_disable_machine_info": True,
    "x_disable_meta": True,
    "x_disable_stats": True,
    "x_save_requirements": False,
}


def _folder() -> Path:
    """Where runs that are offline are kept."""
    return Path(os.environ.get("WANDB_DIR") or ".")
