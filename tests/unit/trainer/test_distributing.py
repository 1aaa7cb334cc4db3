"""Artifacts between the trainer and its nodes, and what the workers printed; the nodes are stubs."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from types import SimpleNamespace
from typing import Any, cast

import pytest
from trainer_room import Agent, Files, Room, ranked

from peerloom.artifacts.cache import ArtifactCache
from peerloom.artifacts.fetch.outcomes import Gave, Lied
from peerloom.artifacts.store import ArtifactStore
from peerloom.errors import NotFoundError, UnavailableError
from peerloom.kit.clock import ManualClock
from peerloom.kit.dialing import Dialer
from peerloom.kit.directory import Directory
from peerloom.services.trainer.models.distributing import Distributor
from peerloom.services.trainer.nodes import job_logs
from peerloom.services.trainer.nodes.evidence_outbox import Witness
from peerloom.services.trainer.nodes.job_logs import JobLogs
from peerloom.v1.artifact_pb2 import Artifact, ArtifactHolder, FetchArtifactRequest, FetchArtifactResponse
from peerloom.v1.node_agent_pb2 import GetWorkerLogsResponse
from peerloom.v1.registry_pb2 import ListNodesResponse, Node, NodeSpec
from peerloom.v1.selector_pb2 import Evidence
from peerloom.v1.trainer_pb2 import Job, JobState, NodeAnswer

DIGEST = "a" * 64


class Kept(Files):
    """A store that knows one artifact of 1,000 bytes."""

    def describe(self, digest: str) -> Artifact:
        if digest != DIGEST:
            raise NotFoundError.of_name("artifact", digest, [DIGEST])
        return Artifact(digest=digest, size_bytes=1000)


class Peers:
    """A cache that fetches what `there` names."""

    def __init__(self, *there: str) -> None:
        self.there = there
        self.asked: list[tuple[str, list[str]]] = []

    async def bring(self, digest: str) -> None:
        """There is no object store."""

    async def obtain(
        self, digest: str, holders: Sequence[ArtifactHolder] = (), report: Any = None
    ) -> Artifact:
        self.asked.append((digest, [holder.address for holder in holders]))
        if digest not in self.there:
            raise NotFoundError("nobody has it")
        if report is not None:
            report(Gave(holders[0], digest, 1000, 0.5))
        return Artifact(digest=digest, size_bytes=1000)


class Setting:
    """A distributor whose transfers take two seconds each."""

    def __init__(self, *there: str, nodes: Sequence[Node] = ()) -> None:
        self.clock, self.files, self.peers = ManualClock(), Kept(), Peers(*there)
        self.evidence: list[Evidence] = []
        self.requests: list[FetchArtifactRequest] = []
        self.held_meanwhile: list[tuple[str, str]] = []
        self.witness = Witness("job-1", self.clock, self.evidence.append)
        registry = SimpleNamespace(
            stub=SimpleNamespace(ListNodes=None), call=self._answer(ListNodesResponse(nodes=nodes))
        )
        self.distributor = Distributor(
            cast("ArtifactStore", self.files),
            cast("ArtifactCache", self.peers),
            cast("Directory", SimpleNamespace(registry=registry)),
            cast("Dialer", SimpleNamespace(artifacts=lambda address: self)),
            "trainer:7402",
            self.clock,
        )
        self.stub = SimpleNamespace(FetchArtifact=None)

    @staticmethod
    def _answer(response: ListNodesResponse) -> Any:
        async def call(*_: object) -> ListNodesResponse:
            return response

        return call

    async def __aenter__(self) -> "Setting":
        return self

    async def __aexit__(self, *_: object) -> None:
        """Nothing is open."""

    async def stream(
        self, method: Any, request: FetchArtifactRequest, timeout_s: float
    ) -> AsyncIterator[FetchArtifactResponse]:
        self.requests.append(request)
        self.held_meanwhile = list(self.files.holds)
        self.clock.advance(2.0)
        yield FetchArtifactResponse(received_bytes=1000)


async def test_what_isn_t_here_is_fetched_and_what_nobody_has_is_not_found() -> None:
    setting = Setting("b" * 64)
    assert (await setting.distributor.know(DIGEST)).size_bytes == 1000
    assert setting.peers.asked == []
    assert (await setting.distributor.know("b" * 64)).digest == "b" * 64
    with pytest.raises(NotFoundError, match="There is no artifact"):
        await setting.distributor.know("a" * 63 + "b")


async def test_a_node_fetches_from_the_trainer_which_keeps_the_artifact_meanwhile() -> None:
    setting = Setting()
    await setting.distributor.give("job-1", ranked("ada"), DIGEST, setting.witness)
    [request] = setting.requests
    assert [holder.address for holder in request.holders] == ["trainer:7402"]
    assert setting.held_meanwhile == [(DIGEST, "job-1")]
    assert setting.files.holds == []
    [fact] = setting.evidence
    assert (fact.node_id, fact.delay_s, fact.transfer_bytes, fact.job_id) == ("node-ada", 2.0, 1000, "job-1")


async def test_who_gave_to_the_trainer_and_who_lied_is_evidence() -> None:
    setting = Setting(DIGEST)
    await setting.distributor.take(DIGEST, [ranked("ada")], setting.witness)
    holder = ArtifactHolder(node_id="node-bob")
    setting.witness.saw_transfer(Lied(holder, DIGEST, "its bytes don't fit"))
    setting.witness.saw_transfer(Gave(ArtifactHolder(name="trainer"), DIGEST, 10, 1.0))
    assert [(fact.node_id, fact.delay_s) for fact in setting.evidence] == [
        ("node-ada", 0.5),
        ("node-bob", 0.0),
    ]


async def test_strangers_are_living_nodes_that_don_t_drain() -> None:
    def node(name: str, draining: bool = False) -> Node:
        return Node(node_id=f"node-{name}", spec=NodeSpec(name=name, address=name), draining=draining)

    setting = Setting(nodes=[node("ada"), node("bob", draining=True), node("cyd"), node("dan")])
    found = await setting.distributor.strangers({"node-ada"}, 1)
    assert [each.name for each in found] == ["cyd"]


async def test_the_workers_output_comes_from_all_nodes_and_an_absent_one_says_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    room = Room(Agent("ada"), Agent("bob"), Agent("cyd"))

    def agent(address: str) -> Any:
        peer = room.neighbours.agents[address].peer()

        async def lines(request: Any) -> AsyncIterator[GetWorkerLogsResponse]:
            if address == "bob":
                raise UnavailableError("bob is away")
            for line in ("one", "two"):
                yield GetWorkerLogsResponse(worker_id=f"worker-{address}", line=line)

        cast("Any", peer).stub.GetWorkerLogs = lines
        return peer

    monkeypatch.setattr(room.recruiter, "agent", agent)
    answers = [NodeAnswer(node=ranked(name), accepted_slots=1) for name in ("ada", "bob")]
    job = Job(job_id="job-1", answers=[*answers, NodeAnswer(node=ranked("cyd"))])

    async def found_again() -> Job:
        return job

    found = [line async for line in JobLogs(room.recruiter).read(found_again, False, 0)]
    assert sorted((line.node_name, line.line) for line in found) == [
        ("ada", "one"),
        ("ada", "two"),
        ("bob", "(no output: bob is away)"),
    ]


async def test_who_follows_hears_each_line_once_also_of_nodes_and_workers_that_come_later(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A node's stream ends with its workers, and is opened again while the job lives; here it breaks once."""
    room = Room(Agent("ada"), Agent("bob"))
    monkeypatch.setattr(job_logs, "LOOK_AGAIN_S", 0.001)
    job = Job(job_id="job-1", state=JobState.JOB_STATE_RUNNING)
    job.answers.add(node=ranked("ada"), accepted_slots=1)
    printed = {"ada": [("w-1", "a"), ("w-1", "b")], "bob": [("w-3", "x")]}
    opened: list[str] = []

    def agent(address: str) -> Any:
        peer = room.neighbours.agents[address].peer()

        async def lines(request: Any) -> AsyncIterator[GetWorkerLogsResponse]:
            opened.append(address)
            for worker_id, line in list(printed[address]):
                yield GetWorkerLogsResponse(worker_id=worker_id, line=line)
                if opened == ["ada"]:
                    raise UnavailableError("the stream broke after one line")
            if opened == ["ada", "ada"]:
                printed["ada"].append(("w-2", "c"))
                job.answers.add(node=ranked("bob"), accepted_slots=1)
            elif address == "bob":
                job.state = JobState.JOB_STATE_SUCCEEDED

        cast("Any", peer).stub.GetWorkerLogs = lines
        return peer

    monkeypatch.setattr(room.recruiter, "agent", agent)

    async def find() -> Job:
        return job

    async with asyncio.timeout(60):
        found = [line async for line in JobLogs(room.recruiter).read(find, True, 0)]
    said = [(line.node_name, line.line) for line in found]
    assert [line for name, line in said if name == "ada"] == [
        "a",
        "(no output: the stream broke after one line)",
        "b",
        "c",
    ]
    assert [line for name, line in said if name == "bob"] == ["x"]
