"""A job whose only worker dies before a first checkpoint: what it comes to, and that this has an end."""

from collections.abc import Iterator

import pytest
from paced_jobs import let_nodes_import_paced_task
from worker_processes import workers_of

from peerloom import Client, Embedded
from peerloom.client.types import GenerationFormed, StepCommitted

JOB_LIMIT_S = 120.0
pytestmark = pytest.mark.timeout(240)


@pytest.fixture(scope="module")
def system(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Embedded]:
    """One node with one slot, and no checkpoint within the time of a test."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PEERLOOM_TRAINER_CHECKPOINT_INTERVAL_S", "3600")
        folder = tmp_path_factory.mktemp("system")
        let_nodes_import_paced_task(patch, folder, 0.02)
        with Embedded(folder / "state", (1,)) as started:
            yield started


@pytest.fixture
def client(system: Embedded) -> Iterator[Client]:
    with Client(system.address) as opened:
        yield opened


def test_it_begins_anew_and_ends_with_the_model_of_an_undisturbed_job(
    system: Embedded, client: Client
) -> None:
    undisturbed = client.train("paced:Paced", epochs=6, seed=7).result(JOB_LIMIT_S)
    job = client.train("paced:Paced", epochs=6, seed=7)
    formed = []
    for event in job.watch():
        if isinstance(event, GenerationFormed):
            formed.append((event.generation, event.first_step))
        if isinstance(event, StepCommitted) and event.step == 3 and event.generation == 1:
            [worker] = workers_of(system.pids["node-1"])
            worker.kill()
    result = job.result(JOB_LIMIT_S)
    assert result.succeeded, result.reason
    assert formed == [(1, 0), (2, 0)]
    assert result.model == undisturbed.model
    assert job.status().begun_anew == 1
    ledger = job.status().ledger
    assert ledger is not None
    assert ledger.is_exact, ledger.verdict
    assert ledger.discarded_samples > 0


def test_one_whose_worker_dies_each_time_fails_and_says_why(system: Embedded, client: Client) -> None:
    job = client.train("paced:Paced", epochs=1000, seed=8)
    killed = 0
    for event in job.watch():
        if isinstance(event, StepCommitted) and event.step == 3:
            [worker] = workers_of(system.pids["node-1"])
            worker.kill()
            killed += 1
    result = job.result(JOB_LIMIT_S)
    assert result.state == "failed"
    assert result.reason.startswith(
        "nobody is left who has the state, and there is no checkpoint: it began anew 3 times already: "
    )
    assert result.reason.endswith("its process was killed by signal 9")
    assert killed == 4
