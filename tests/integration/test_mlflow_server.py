"""A job told to a real tracking server of MLflow, which dies in the midst of it."""

from pathlib import Path

import pytest
from mlflow_server import MlflowServer
from tracked_jobs import JOB_ID, RecordedJob

from peerloom.client.tracking.job_tracking import JobTracking

# MLflow's own warnings, of its dependencies and of what it will change, are its own.
pytestmark = [pytest.mark.filterwarnings("ignore::Warning"), pytest.mark.timeout(120)]


async def test_a_server_that_is_killed_and_comes_back_has_each_step_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has two steps when it dies; the first pause after it was missed brings it back."""
    from mlflow.tracking import MlflowClient

    monkeypatch.setenv("MLFLOW_DISABLE_TELEMETRY", "true")
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "1")
    told: list[str] = []
    with MlflowServer(tmp_path) as server:
        client, place = MlflowClient(tracking_uri=server.uri), f"mlflow:{server.uri}"

        async def come_back(_: float) -> None:
            server.kill()
            server.start()

        await JobTracking(RecordedJob(until=5), place, told.append).run()
        experiment = client.get_experiment_by_name("peerloom").experiment_id
        (begun,) = client.search_runs([experiment])
        assert (begun.info.status, begun.data.metrics["train/loss"]) == ("RUNNING", 1.5)
        server.kill()
        await JobTracking(RecordedJob(), place, told.append, come_back).run()

        (run,) = client.search_runs([experiment], f"tags.`peerloom.job_id` = '{JOB_ID}'")
        history = client.get_metric_history(run.info.run_id, "train/loss")
    assert [(one.step, one.value) for one in history] == [(1, 2.0), (2, 1.5), (3, 1.0), (4, 0.5)]
    assert (run.info.run_id, run.info.status) == (begun.info.run_id, "FINISHED")
    assert run.data.metrics["belief/anna"] == 1.5
    assert run.data.metrics["workers/lost"] == 1.0
    assert "step 2: lost worker-anna-1 on anna: killed" in run.data.tags["mlflow.note.content"]
    assert [line.partition(" (")[0] for line in told] == [
        f"{place} fails",
        f"{place} works again; nothing is missing there.",
    ]
