"""What a job's record has of federated rounds: updates that counted, each once, also after some were lost."""

import pytest

from peerloom.errors import InvalidArgumentError
from peerloom.services.trainer.jobs.federated_entries import beliefs_in, why_not_round
from peerloom.services.trainer.jobs.sample_ledger import (
    STRETCHES_KEPT,
    add_step,
    go_back_in,
    judge_in,
    planned_steps,
)
from peerloom.services.trainer.jobs.specs import complete_spec
from peerloom.v1.selector_pb2 import RankedNode
from peerloom.v1.trainer_pb2 import (
    ClientPush,
    ClientTotals,
    FederatedRound,
    Job,
    JobSpec,
    Ledger,
    NodeAnswer,
    StepProgress,
    Worker,
)


def job_of(sync: str = "federated", **fields: int) -> Job:
    spec = complete_spec(JobSpec(task="digits", epochs=9, sync=sync, **fields))
    return Job(spec=spec, ledger=Ledger(training_samples=1437), workers=[Worker(), Worker()])


def round_of(number: int, samples: int = 30, refused: int = 0) -> StepProgress:
    """Round `number`, from 1, in each of which client 0 has so many samples that count."""
    before = samples * (number - 1)
    pushes = [ClientPush(client=0, version=number - 1, samples=samples, verdict="accepted", weight=1.0)]
    if refused:
        pushes.append(ClientPush(client=1, version=0, samples=refused, verdict="refused"))
    totals = ClientTotals(client=0, updates=number, samples=before + samples)
    clients = [totals, ClientTotals(client=1, refused_updates=int(refused > 0), refused_samples=refused)]
    told = FederatedRound(drawn=[0], reason="all", pushes=pushes, clients=clients)
    return StepProgress(
        step=number,
        epoch=number,
        samples=samples,
        first_sample=before,
        generation=1,
        workers=2,
        federated=told,
    )


def test_a_job_has_a_shard_for_each_worker_that_it_wants() -> None:
    assert "shards=3," in job_of().spec.sync
    assert "shards=5," in job_of(max_workers=5).spec.sync
    assert "shards=8," in job_of("federated,shards=8", max_workers=5).spec.sync
    assert planned_steps(job_of()) == 9


def test_a_batch_is_a_clients_own_so_workers_may_be_more() -> None:
    assert job_of(batch_size=2, min_workers=4).spec.batch_size == 2
    with pytest.raises(InvalidArgumentError, match="a worker's share is its shard"):
        complete_spec(JobSpec(task="digits", sync="federated", equal_shares=True))


def test_the_ledger_is_exact_when_rounds_are_what_updates_had() -> None:
    job = job_of()
    for number in (1, 2, 3):
        assert why_not_round(job, round_of(number, refused=4)) == ""
        add_step(job.ledger, round_of(number, refused=4))
    words = "exact: 3 rounds with 90 samples of 3 updates, each counted once; 1 refused"
    assert judge_in(job, None) == (True, words)
    assert judge_in(job, 9) == (False, "3 of 9 rounds are there")
    job.ledger.clients[0].samples += 1
    assert judge_in(job, None)[1] == "the rounds counted 90 samples, and the clients' updates have 91"


def test_rounds_that_were_lost_are_made_again() -> None:
    job = job_of()
    for number in range(1, 6):
        add_step(job.ledger, round_of(number))
    go_back_in(job, 2)
    assert job.ledger.discarded_samples == 90
    assert judge_in(job, None)[0]
    add_step(job.ledger, round_of(3))
    assert judge_in(job, None) == (True, "exact: 3 rounds with 90 samples of 3 updates, each counted once")
    go_back_in(job, 0)
    assert judge_in(job, None)[0]
    assert list(job.ledger.stretches) == []


def test_many_rounds_are_put_together_and_may_be_lost_all_the_same() -> None:
    job = job_of()
    for number in range(1, STRETCHES_KEPT + 11):
        add_step(job.ledger, round_of(number))
    assert len(job.ledger.stretches) == STRETCHES_KEPT
    assert judge_in(job, None)[0]
    go_back_in(job, 4)
    again = round_of(5)
    assert why_not_round(job, again) == ""
    add_step(job.ledger, again)
    assert judge_in(job, None) == (True, "exact: 5 rounds with 150 samples of 5 updates, each counted once")


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"epoch": 7}, "as epoch 7"),
        ({"samples": 31}, "of 31 samples, and its updates that count have 30"),
        ({"first_sample": 3}, "after 3 samples, but 0 had counted"),
    ],
)
def test_a_round_that_cannot_be_is_not_believed(change: dict[str, int], why: str) -> None:
    told = round_of(1)
    for name, value in change.items():
        setattr(told, name, value)
    assert why in why_not_round(job_of(), told)


def test_what_is_told_of_a_round_has_limits() -> None:
    job, told = job_of(), round_of(1)
    told.federated.clients[0].samples = 29
    assert "reports clients with 29 samples" in why_not_round(job, told)
    told = round_of(1)
    told.federated.pushes[0].weight = float("nan")
    assert "with the weight nan" in why_not_round(job, told)
    told = round_of(1)
    told.federated.pushes[0].verdict = "maybe"
    assert "'maybe'" in why_not_round(job, told)
    told = round_of(1)
    told.federated.reason = "x" * 10_000
    assert "characters" in why_not_round(job, told)
    told = round_of(1)
    told.federated.drawn.extend(range(99))
    assert "of 2 workers" in why_not_round(job, told)


def test_beliefs_are_those_of_the_nodes_answers() -> None:
    job = Job(answers=[NodeAnswer(node=RankedNode(node_id="a", belief=2.5))])
    assert beliefs_in(job, ["b", "a"]) == [0.0, 2.5]
