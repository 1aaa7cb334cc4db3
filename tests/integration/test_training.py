"""Jobs from submission to model, on a whole embedded system: three workers on two nodes."""

import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from peerloom import Client, Embedded, JobHandle
from peerloom.client.types import EpochFinished, JobEvent, NodeAnswered, StateChanged, StepCommitted
from peerloom.errors import InvalidArgumentError, NotFoundError
from peerloom.worker.task import load_task

JOB_LIMIT_S = 90.0
pytestmark = pytest.mark.timeout(180)


@pytest.fixture(scope="module")
def system(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Embedded]:
    with pytest.MonkeyPatch.context() as patch:
        # Which nodes answer in time decides who trains, and so the parameters' last bits.
        patch.setenv("PEERLOOM_TRAINER_REQUEST_TIMEOUT_S", "60")
        with Embedded(tmp_path_factory.mktemp("system"), (2, 1, 0)) as started:
            yield started


@pytest.fixture(scope="module")
def client(system: Embedded) -> Iterator[Client]:
    with Client(system.address) as opened:
        yield opened


@pytest.fixture(scope="module")
def trained(client: Client) -> tuple[JobHandle, list[JobEvent]]:
    """A job that has ended, and what two watches saw of it, the second from where the first was left.

    It is the first one here with its seed, so what it sends no node has already.
    """
    job = client.train("digits", requests=2, epochs=4, seed=3)
    seen = list(itertools.islice(job.watch(), 10))
    seen += list(job.watch(after=seen[-1].sequence))
    return job, seen


def test_a_job_trains_on_all_slots_and_leaves_a_model_that_plain_torch_loads(
    trained: tuple[JobHandle, list[JobEvent]], tmp_path: Path
) -> None:
    job, events = trained
    result = job.result(JOB_LIMIT_S)
    assert result.succeeded, result.reason
    assert result.metric is not None
    assert result.metric > 0.9

    steps = [event for event in events if isinstance(event, StepCommitted)]
    assert [step.step for step in steps] == list(range(1, 4 * 45 + 1))
    assert sum(step.samples for step in steps) == 4 * 1437
    assert all(step.communicated_bytes > 0 for step in steps)
    assert len([event for event in events if isinstance(event, EpochFinished)]) == 4
    assert sum(e.answer.accepted_slots for e in events if isinstance(e, NodeAnswered)) == 3

    task = load_task("digits", {})
    model = task.model()
    model.load_state_dict(load_file(job.fetch_model(tmp_path / "model.safetensors")))
    model.eval()
    _, test = task.data()
    inputs, targets = task.batch(test, torch.arange(len(test)))
    accuracy = float(task.metric(model(inputs), targets).mean())
    assert accuracy == pytest.approx(result.metric)


def test_the_model_s_record_says_what_its_task_declares(
    client: Client, trained: tuple[JobHandle, list[JobEvent]]
) -> None:
    assert trained[0].result(JOB_LIMIT_S).succeeded
    declared = load_task("digits", {}).raw_input
    assert declared is not None
    assert client.model(trained[0].id).raw_input == declared


def test_the_same_seed_gives_the_same_parameters_and_another_seed_others(client: Client) -> None:
    digests = []
    for seed in (7, 7, 8):
        job = client.train("digits", requests=2, epochs=1, seed=seed, equal_shares=True)
        result = job.result(JOB_LIMIT_S)
        assert result.succeeded, result.reason
        assert result.model is not None
        digests.append(result.model.digest)
    assert digests[0] == digests[1]
    assert digests[0] != digests[2]


def test_a_job_begins_from_an_initial_model_and_its_own_is_listed_first(
    client: Client, trained: tuple[JobHandle, list[JobEvent]]
) -> None:
    first = trained[0].result(JOB_LIMIT_S)
    assert first.model is not None
    second = client.train("digits", requests=2, epochs=1, initial_model=first.model.digest)
    losses = [event.loss for event in second.watch() if isinstance(event, StepCommitted)]
    assert second.result(JOB_LIMIT_S).succeeded
    assert losses[0] < 1.0, "a fresh model begins at ln(10) = 2.3"
    assert client.models()[0].job_id == second.id


def test_a_round_that_finds_no_compute_ends_at_once_with_a_reason(client: Client) -> None:
    result = client.train("digits", requests=1, accelerator="tpu").result(JOB_LIMIT_S)
    assert (result.state, result.model) == ("no_compute", None)
    assert "tpu" in result.reason


def test_a_busy_system_refuses_a_second_job_until_cancelling_frees_the_slots(client: Client) -> None:
    first = client.train("digits", requests=2, epochs=100_000)
    next(event for event in first.watch() if isinstance(event, StepCommitted))
    second = client.train("digits", requests=2).result(JOB_LIMIT_S)
    assert second.state == "no_compute"
    assert first.cancel().state == "cancelled"
    again = client.train("digits", requests=2, epochs=1).result(JOB_LIMIT_S)
    assert again.succeeded, again.reason


def test_a_watch_resumes_from_a_sequence_number(trained: tuple[JobHandle, list[JobEvent]]) -> None:
    _, seen = trained
    assert [event.sequence for event in seen] == list(range(1, len(seen) + 1))
    assert isinstance(seen[-1], StateChanged)
    assert seen[-1].state == "succeeded"


@pytest.mark.parametrize(
    ("arguments", "field"),
    [
        ({"epochs": 0}, "epochs"),
        ({"batch_size": 2, "min_workers": 3}, "batch_size"),
        ({"requests": 0}, "requests"),
        ({"learning_rate": -1.0}, "learning_rate"),
    ],
)
def test_bad_input_is_refused_with_the_field(client: Client, arguments: dict[str, int], field: str) -> None:
    with pytest.raises(InvalidArgumentError, match=field if field != "requests" else "request"):
        client.train("digits", **arguments)  # type: ignore[arg-type]  # bad on purpose


def test_unknown_names_are_told_the_nearest(client: Client) -> None:
    with pytest.raises(NotFoundError, match="digits"):
        client.train("digit")
    with pytest.raises(NotFoundError, match="thesis"):
        client.train("digits", policy="theses")
    with pytest.raises(NotFoundError):
        client.job("job-nowhere").status()


def test_a_task_that_no_node_can_load_fails_with_a_clear_reason(client: Client) -> None:
    result = client.train("json:Nothing", requests=2).result(JOB_LIMIT_S)
    assert result.state == "failed"
    assert "Nothing" in result.reason


def test_what_the_job_did_is_evidence_once(client: Client, trained: tuple[JobHandle, list[JobEvent]]) -> None:
    job, _ = trained
    assert job.result(JOB_LIMIT_S).succeeded
    node = job.status().answers[0].name
    facts = [update.evidence for update in client.belief_history(node) if update.evidence]
    kinds = [fact.kind for fact in facts if fact.job_id == job.id]
    assert sorted(kinds) == ["training", "transfer"]


def test_logs_can_be_read(trained: tuple[JobHandle, list[JobEvent]]) -> None:
    job, _ = trained
    assert job.result(JOB_LIMIT_S).succeeded
    assert any("generation_joined" in line.line for line in job.logs())
