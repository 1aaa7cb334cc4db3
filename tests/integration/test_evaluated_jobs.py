"""Jobs of real workers whose models the trainer evaluates: of honest ones, of boasters, and what it can't."""

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from boasting_workers import BOAST, BOASTING_SEED
from click.testing import CliRunner

from peerloom import Client, Embedded, Job, ModelEvaluated
from peerloom.cli.main import cli

LIMIT_S = 200.0
pytestmark = pytest.mark.timeout(400)


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(Path(__file__).parent), prepend=os.pathsep)
        patch.setenv("PEERLOOM_TRAINER_EVALUATE", "auto")
        patch.setenv("PEERLOOM_TRAINER_REQUEST_TIMEOUT_S", "120")
        patch.setenv("PEERLOOM_NODE_WORKER_COMMAND", f"{sys.executable},-m,boasting_workers")
        folder = tmp_path_factory.mktemp("system")
        with Embedded(folder, (1, 1)) as system, Client(system.address) as opened:
            yield opened


def ended(client: Client, task: str = "digits", **more: object) -> tuple[Job, list[ModelEvaluated]]:
    """A job that has ended, and what its events say of an evaluation."""
    told = {"epochs": 1, "requests": 1, **more}
    job = client.train(task, **told)  # type: ignore[arg-type]  # by name
    found = [event for event in job.watch() if isinstance(event, ModelEvaluated)]
    job.result(LIMIT_S)
    return job.status(), found


def test_an_honest_model_is_found_as_told_to_the_last_sample(client: Client) -> None:
    job, [event] = ended(client, epochs=2, requests=2, min_workers=2, seed=1)
    assert job.state == "succeeded", job.reason
    found = job.evaluation
    assert found is not None
    assert (found.verdict, found.metric_name, found.test_samples) == ("agrees", "accuracy", 360)
    assert found.told == found.found == pytest.approx(round((found.found or 0) * 360) / 360)
    assert event.evaluation == found


def test_workers_that_boast_fail_their_job_and_their_node_has_lied(client: Client) -> None:
    job, [event] = ended(client, seed=BOASTING_SEED)
    assert job.state == "failed"
    assert job.result is not None
    assert job.result.model is None
    found = job.evaluation
    assert found is not None
    assert (found.verdict, found.reason_code, found.told) == ("differs", "METRIC_DIFFERS", BOAST)
    assert found.found is not None
    assert found.found < 0.98
    assert job.reason == f"the model isn't what its workers told of: {found.reason}"
    assert f"{found.found:.4f}, but its workers told of 0.9999" in str(event)
    [liar] = {worker.node_id for worker in job.workers}
    assert client.belief(liar).belief <= -1_000_000
    shown = CliRunner().invoke(
        cli, ["jobs", "show", job.id, "--address", client.address], env={"COLUMNS": "200"}
    )
    assert "differs: the model's accuracy" in " ".join(shown.output.split())


def test_code_and_data_that_the_trainer_has_not_are_said_to_be_the_workers_word(client: Client) -> None:
    job, [event] = ended(client, "text", batch_size=512, requests=1, arguments={"width": "8", "depth": "1"})
    assert job.state == "succeeded", job.reason
    assert job.evaluation is not None
    assert (job.evaluation.verdict, job.evaluation.reason_code) == ("not evaluated", "DATA_VARY")
    assert "another text in each version of Python" in str(event)
