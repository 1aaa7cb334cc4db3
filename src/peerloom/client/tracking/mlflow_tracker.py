"""MLflow: one run a job, found again by a tag with the job's id; another tag says how far it was told."""

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

from peerloom.client.tracking.track_entries import TrackEntry, ending_of, parameters_of
from peerloom.client.types import Job
from peerloom.errors import UnavailableError

if TYPE_CHECKING:
    from mlflow.entities import Run
    from mlflow.tracking import MlflowClient

EXPERIMENT = "peerloom"  # where MLFLOW_EXPERIMENT_NAME says nothing else
JOB_TAG, SEQUENCE_TAG, STATE_TAG = "peerloom.job_id", "peerloom.sequence", "peerloom.state"
_NOTE_TAG = "mlflow.note.content"  # shown as the run's description
METRIC_LIMIT = 1000  # in one call, by MLflow's API
_VALUE_LIMIT = 5000
_STATUS = {"succeeded": "FINISHED", "cancelled": "KILLED"}


class MlflowTracker:
    """Writes to the tracking server, or the database, at `uri`."""

    def __init__(self, uri: str) -> None:
        self._uri = uri
        self._client: MlflowClient
        self._run_id = ""

    def begin(self, job: Job) -> int:
        """Finds the job's run, or creates it."""
        from mlflow.tracking import MlflowClient

        # Failures are told and tried again here: its own seven attempts would say nothing for minutes.
        os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "1")
        self._client = MlflowClient(tracking_uri=self._uri)
        experiment = self._experiment()
        runs = self._client.search_runs([experiment], f"tags.`{JOB_TAG}` = '{job.id}'", max_results=1)
        run = runs[0] if runs else self._create(experiment, job)
        self._run_id = run.info.run_id
        if not job.ended and run.info.status != "RUNNING":
            self._client.update_run(self._run_id, status="RUNNING")
        return int(run.data.tags.get(SEQUENCE_TAG, "0"))

    def write(self, job: Job, entries: Sequence[TrackEntry], chronicle: str) -> None:
        """Logs the figures, and last the tag that says how far they go."""
        from mlflow.entities import Metric, Param, RunTag

        metrics = [
            Metric(name, value, round(entry.time_s * 1000), entry.step)
            for entry in entries
            for name, value in entry.figures.items()
        ]
        # Parameters don't change once they are logged; what was left open is added when it is known.
        asked = [Param(name, value[:_VALUE_LIMIT]) for name, value in parameters_of(job).items()]
        for at in range(0, len(asked), 100):
            self._client.log_batch(self._run_id, params=asked[at : at + 100])
        for at in range(0, len(metrics), METRIC_LIMIT):
            self._client.log_batch(self._run_id, metrics=metrics[at : at + METRIC_LIMIT])
        tags = [RunTag(STATE_TAG, ending_of(job)[:_VALUE_LIMIT])]
        if chronicle:
            tags.append(RunTag(_NOTE_TAG, _as_note(chronicle)))
        self._client.log_batch(self._run_id, tags=[*tags, RunTag(SEQUENCE_TAG, str(entries[-1].sequence))])

    def finish(self, job: Job) -> None:
        """Says how the job ended, and when."""
        self._client.set_tag(self._run_id, STATE_TAG, ending_of(job)[:_VALUE_LIMIT])
        end_ms = round(job.end_time.timestamp() * 1000) if job.end_time else None
        self._client.set_terminated(self._run_id, _STATUS.get(job.state, "FAILED"), end_ms)

    def release(self) -> None:
        """Nothing is held: each call stands for itself."""

    def _experiment(self) -> str:
        name = os.environ.get("MLFLOW_EXPERIMENT_NAME") or EXPERIMENT
        found = self._client.get_experiment_by_name(name)
        if found is None:
            return str(self._client.create_experiment(name))
        if found.lifecycle_stage != "active":
            raise UnavailableError(
                f"MLflow's experiment {name} is deleted: restore it, or set MLFLOW_EXPERIMENT_NAME",
                reason="TRACKER_UNUSABLE",
            )
        return str(found.experiment_id)

    def _create(self, experiment: str, job: Job) -> "Run":
        start_ms = round(job.submit_time.timestamp() * 1000) if job.submit_time else None
        name = f"{job.spec.name} {job.id}".strip()
        return self._client.create_run(experiment, start_ms, tags={JOB_TAG: job.id}, run_name=name)


def _as_note(chronicle: str) -> str:
    """Its lines as Markdown shows them: one below the other, and not as Markdown."""
    return "\n".join(f"    {line}" for line in chronicle.splitlines())[:_VALUE_LIMIT]
