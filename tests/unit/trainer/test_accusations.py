"""What comes of what workers say of each other's work: further audits, a dismissal, or no audits at all."""

from typing import Any

import pytest
from test_worker_pool import Job, begin
from trainer_room import prepared_for, worker

from peerloom.kit.audit_rules import ORDERED_STEPS
from peerloom.services.trainer.workers.accusations import AuditKeeper
from peerloom.services.trainer.workers.state import Lost
from peerloom.v1.selector_pb2 import EvidenceKind
from peerloom.v1.trainer_pb2 import (
    OrderAudits,
    WorkerAccusation,
    WorkerBeat,
    WorkerHello,
    WorkerReady,
    WorkerRefusal,
    WorkerSessionRequest,
    WorkerUnrepeatable,
)

NODES = ["ada", "bob", "cyd", "dan"]


@pytest.fixture
def job() -> Job:
    """Four workers on four nodes of four owners, in their first generation."""
    return working(NODES)


def working(nodes: list[str], kinds: tuple[str, ...] = ("cpu",) * 4, robust: str = "auto") -> Job:
    job = Job(robust=robust)
    job.sessions.expect([worker(i, node) for i, node in enumerate(nodes)])
    for i, kind in enumerate(kinds):
        hello = WorkerHello(worker_id=f"worker-{i}", accelerator_kind=kind)
        request = job.streams.hellos[hello.worker_id] = WorkerSessionRequest(hello=hello)
        job.sessions.session_opened(request)
        job.says(i, prepared=prepared_for(job.record.job.spec, samples=200))
    begin(job, *range(len(nodes)))
    for i in range(len(nodes)):
        job.says(i, ready=WorkerReady(generation=1))
    job.streams.sent.clear()
    job.record.take_change()
    return job


def accuses(job: Job, number: int, node: str, **more: Any) -> None:
    said = {"generation": 1, "step": 4, "difference": 2.0, **more}
    job.says(number, accusation=WorkerAccusation(node_id=f"node-{node}", **said))


def events(job: Job) -> list[Any]:
    change = job.record.take_change()
    return [] if change is None else change.events


def kinds_of(job: Job) -> list[str]:
    return [event.WhichOneof("event") for event in events(job)]


def ordered(job: Job) -> list[tuple[str, OrderAudits]]:
    orders = [(to, one.order_audits) for to, one in job.streams.sent if one.HasField("order_audits")]
    job.streams.sent.clear()
    return orders


def test_the_first_accusation_of_a_pair_orders_audits_of_all_but_the_accused(job: Job) -> None:
    accuses(job, 0, "dan")
    order = OrderAudits(node_id="node-dan", steps=ORDERED_STEPS)
    assert ordered(job) == [("worker-0", order), ("worker-1", order), ("worker-2", order)]
    assert kinds_of(job) == ["accusation"]
    accuses(job, 0, "dan", step=5)
    assert ordered(job) == []
    assert kinds_of(job) == []


def test_whom_most_owners_accuse_is_dismissed_with_evidence_of_a_lie(job: Job) -> None:
    for number in (0, 1):
        accuses(job, number, "dan", step=4 + number)
    assert not isinstance(job.state(3).phase, Lost), "two of four are not more than half"
    job.record.take_change()
    accuses(job, 2, "dan", step=7)
    assert isinstance(job.state(3).phase, Lost)
    change = job.record.take_change()
    assert change is not None
    assert [event.WhichOneof("event") for event in change.events] == ["accusation", "liar_dismissed"]
    dismissed = change.events[1].liar_dismissed
    assert [(one.owner, one.step) for one in dismissed.accusations] == [
        ("node-ada", 4),
        ("node-bob", 5),
        ("node-cyd", 7),
    ]
    [evidence] = change.evidence
    assert (evidence.node_id, evidence.kind) == ("node-dan", EvidenceKind.EVIDENCE_KIND_LIE)
    assert "4, 5, 7" in evidence.detail
    told = [one for to, one in job.streams.sent if to == "worker-3"]
    assert told[-1].HasField("end")
    assert job.record.worker("worker-3").ended
    assert job.record.job.audits.accusations == []


def test_a_dismissed_worker_that_comes_back_is_told_to_end(job: Job) -> None:
    for number in (0, 1, 2):
        accuses(job, number, "dan")
    job.streams.sent.clear()
    job.says(3, beat=WorkerBeat(committed_step=9))
    assert job.streams.told("worker-3") == ["end"]


def test_the_word_of_one_owner_counts_once_however_many_workers_it_has() -> None:
    job = Job()
    job.sessions.expect([worker(i, node) for i, node in enumerate(["ada", "bob", "cyd", "dan"])])
    for i, owner in enumerate(["one", "one", "one", "two"]):
        hello = WorkerHello(worker_id=f"worker-{i}", owner=owner, accelerator_kind="cpu")
        job.sessions.session_opened(WorkerSessionRequest(hello=hello))
        job.says(i, prepared=prepared_for(job.record.job.spec, samples=200))
    begin(job, 0, 1, 2, 3)
    for number in (0, 1, 2):
        accuses(job, number, "dan")
    assert len(job.record.job.audits.accusations) == 1
    assert not isinstance(job.state(3).phase, Lost)


def test_where_pairs_accuse_one_another_all_audits_end(job: Job) -> None:
    """Of four owners two lie, or the task differs: nobody can tell."""
    accuses(job, 0, "bob")
    accuses(job, 2, "dan")
    assert kinds_of(job) == ["accusation", "accusation", "audits_off"]
    for number in (0, 1, 2):
        accuses(job, number, "dan", step=8)
    assert not isinstance(job.state(3).phase, Lost)
    assert not AuditKeeper(job.record, job.pool, job.witness).may_audit(["worker-0", "worker-1"])


def test_most_owners_say_that_a_task_cannot_be_repeated(job: Job) -> None:
    said = WorkerUnrepeatable(generation=1, reason="it came out different")
    for number in (0, 0, 1):
        job.says(number, unrepeatable=said)
    assert [event.audits_off.node_name for event in events(job)] == ["ada", "bob"]
    accuses(job, 3, "ada")
    assert kinds_of(job) == ["accusation"], "two of four don't end the audits of the others"
    job.says(2, unrepeatable=said)
    assert [event.audits_off.node_name for event in events(job)] == ["cyd", ""]


def test_a_refused_gradient_is_told_once_a_node_and_generation_and_is_no_accusation(job: Job) -> None:
    refusal = WorkerRefusal(generation=1, step=3, node_ids=["node-bob", "node-nobody"])
    job.says(0, refusal=refusal)
    job.says(2, refusal=refusal)
    job.says(2, refusal=WorkerRefusal(generation=7, step=3, node_ids=["node-bob"]))
    [event] = events(job)
    assert (event.gradients_refused.node_name, event.gradients_refused.worker_id) == ("bob", "worker-0")
    assert job.record.job.audits.accusations == []


@pytest.mark.parametrize("said", [{"step": 0}, {"step": 21}, {"step": 3, "node_ids": ["node-bob"] * 5}])
def test_a_refusal_that_cannot_be_true_costs_its_author_the_place(job: Job, said: dict[str, Any]) -> None:
    """The job has 20 steps, and four workers."""
    job.says(0, refusal=WorkerRefusal(generation=1, **said))
    assert isinstance(job.state(0).phase, Lost)
    assert kinds_of(job) == ["worker_lost"]


def test_no_number_of_audits_that_workers_tell_of_is_too_large_to_be_kept(job: Job) -> None:
    for number in range(4):
        job.record.audits_made(f"worker-{number}", 2**64 - 1)
    assert job.record.job.audits.made == 4 * 2**32


@pytest.mark.parametrize(
    "said",
    [{"step": 0}, {"step": 21}, {"generation": 2}, {"difference": 0.01}, {"difference": float("nan")}],
)
def test_an_accusation_that_cannot_be_true_costs_its_author_the_place(job: Job, said: dict[str, Any]) -> None:
    """The job has 20 steps, and one generation."""
    accuses(job, 0, "dan", **said)
    assert isinstance(job.state(0).phase, Lost)
    assert job.record.job.audits.accusations == []


def test_audits_need_workers_that_draw_the_same_random_numbers() -> None:
    ids = [f"worker-{i}" for i in range(4)]

    def may(job: Job) -> bool:
        return AuditKeeper(job.record, job.pool, job.witness).may_audit(ids)

    assert may(working(NODES))
    assert not may(working(NODES, robust="off"))
    mixed = working(NODES, kinds=("cpu", "cuda", "cpu", "cpu"))
    assert not may(mixed)
    assert not may(mixed)
    assert [event.audits_off.reason for event in events(mixed)] == [
        "some workers compute on cpu, others on cuda"
    ]


def test_audits_are_counted_over_all_workers(job: Job) -> None:
    for number, made in ((0, 2), (1, 3), (0, 2), (0, 5)):
        job.says(number, beat=WorkerBeat(committed_step=3, audits=made))
    assert job.record.job.audits.made == 8
