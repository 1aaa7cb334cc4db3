"""The example's elastic loop on a whole system: a worker is killed, another joins, and nothing restarts."""

import importlib.util
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from click.testing import CliRunner
from safetensors.torch import load_file
from worker_processes import workers_of

from peerloom import Client, Embedded
from peerloom.cli.main import cli
from peerloom.client.types import EpochFinished, GenerationFormed, JobEvent, StepCommitted, WorkerLost
from peerloom.worker.elastic.elastic_run import ElasticRun

LIMIT_S = 200.0
EXAMPLE = Path(__file__).parents[2] / "examples" / "elastic_script.py"
ARGUMENTS = ["--epochs", "8", "--samples", "512"]  # 64 steps
STRUCK_AT = 8
# Slow enough to be struck in the middle, and, with fewer than three, to be joined before the end.
PACED = """
import threading

import elastic_script
from peerloom.worker.elastic.elastic_run import ElasticRun

log = ElasticRun.log


def log_later(run, **metrics):
    threading.Event().wait(0.05 if run.size == 3 else 0.5)
    log(run, **metrics, size=run.size)


ElasticRun.log = log_later
elastic_script.main()
"""
pytestmark = pytest.mark.timeout(300)


@pytest.fixture(scope="module")
def system(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Embedded]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PEERLOOM_NODE_ALLOW_CODE", "true")
        with Embedded(tmp_path_factory.mktemp("system"), (2, 1)) as started:
            yield started


@pytest.fixture
def client(system: Embedded) -> Iterator[Client]:
    with Client(system.address) as opened:
        yield opened


def trained_here(monkeypatch: pytest.MonkeyPatch) -> dict[str, torch.Tensor]:
    """The parameters that the example comes to in this process alone."""
    models, prepare = [], ElasticRun.prepare

    def noting(run: ElasticRun, model: torch.nn.Module, *rest: Any) -> Any:
        models.append(model)
        return prepare(run, model, *rest)

    monkeypatch.setattr(ElasticRun, "prepare", noting)
    monkeypatch.setattr("sys.argv", [str(EXAMPLE), *ARGUMENTS])
    spec = importlib.util.spec_from_file_location("elastic_script", EXAMPLE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module.main()
    return dict(models[0].state_dict())


def test_a_killed_worker_and_a_newcomer_change_nothing_of_the_result(
    system: Embedded, client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code = tmp_path / "code"
    code.mkdir()
    shutil.copy(EXAMPLE, code)
    (code / "paced.py").write_text(PACED)
    job = client.train(str(code / "paced.py"), code=code, script_arguments=ARGUMENTS, requests=2)
    events: list[JobEvent] = []
    for event in job.watch():
        events.append(event)
        if isinstance(event, StepCommitted) and event.step == STRUCK_AT:
            workers_of(system.pids["node-1"])[0].kill()
    result = job.result(LIMIT_S)
    assert result.succeeded, result.reason

    steps = [event for event in events if isinstance(event, StepCommitted)]
    assert [step.step for step in steps] == list(range(1, 65))
    assert [event.epoch for event in events if isinstance(event, EpochFinished)] == list(range(1, 9))
    ledger = job.status().ledger
    assert ledger is not None
    assert (ledger.is_exact, ledger.discarded_samples) == (True, 0)
    assert [event for event in events if isinstance(event, WorkerLost)]
    formed = [len(event.workers) for event in events if isinstance(event, GenerationFormed)]
    assert (formed[0], formed[-1], len(formed) >= 2) == (3, 3, True)
    assert {step.metrics["lr"] for step in steps[:63]} == {0.02}  # the schedule changes it after step 64
    assert steps[-1].metrics["size"] == 3
    # What the script does between its steps counts: workers say by a step's time when they can be joined.
    assert all(step.step_s >= (0.05 if step.metrics["size"] == 3 else 0.5) for step in steps)

    here = trained_here(monkeypatch)
    there = load_file(job.fetch_model(tmp_path / "model.safetensors"))
    torch.testing.assert_close(there, here, rtol=1e-3, atol=1e-4)
    assert result.metric is not None
    assert result.metric > 0.9


def test_the_command_trains_a_script_shows_what_it_logs_and_says_what_failed(
    client: Client, tmp_path: Path
) -> None:
    def peerloom(*words: str) -> Any:
        return CliRunner().invoke(cli, ["--address", client.address, *words])

    trained = peerloom("train", "--requests", "2", str(EXAMPLE), "--", "--epochs", "1")
    assert trained.exit_code == 0, trained.output
    job = client.jobs(limit=1)[0]
    assert (job.spec.task, job.spec.script_arguments) == ("elastic_script.py", ("--epochs", "1"))
    assert (job.spec.name, job.spec.epochs, job.spec.batch_size) == ("elastic-script", 1, 64)
    assert "accuracy" in peerloom("jobs", "logs", job.id).stdout
    shown = " ".join(peerloom("jobs", "show", job.id).stdout.split())
    assert "arguments --epochs 1" in shown
    assert "logged lr 0.02" in shown

    script = tmp_path / "wrong.py"
    script.write_text("import sys\nraise ValueError(f'there is no {sys.argv[1]}')\n")
    failed = peerloom("train", str(script), "--", "data.csv")
    assert failed.exit_code != 0
    assert "the script failed: ValueError: there is no data.csv" in client.jobs(limit=1)[0].reason
    refused = peerloom("train", "--epochs", "3", str(EXAMPLE))
    assert "left to the script" in refused.output
