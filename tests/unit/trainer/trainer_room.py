"""A trainer's parts without a network, a disk or real time, for tests to play with."""

import asyncio
from collections.abc import AsyncIterator, Callable, Collection, Sequence
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ParamSpec, TypeVar, cast

from peerloom.artifacts.store import ArtifactStore
from peerloom.errors import DataLossError, NotFoundError, PeerloomError, UnavailableError
from peerloom.kit.clock import ManualClock
from peerloom.kit.database import Database, SqlThread, connect_database, storage_errors
from peerloom.kit.dialing import Dialer, NodeAgentPeer, RegistryPeer, SelectorPeer
from peerloom.kit.directory import Directory
from peerloom.kit.evidence import EvidenceReporter
from peerloom.kit.lease import Lease
from peerloom.kit.raw_input import RawInput
from peerloom.sandbox.grant import Grant
from peerloom.services.trainer.config import TrainerConfig
from peerloom.services.trainer.jobs.commit_queue import CommitQueue
from peerloom.services.trainer.jobs.record import JobRecord
from peerloom.services.trainer.jobs.runner import JobDependencies
from peerloom.services.trainer.jobs.specs import complete_spec
from peerloom.services.trainer.jobs.submission import SubmissionChecks
from peerloom.services.trainer.jobs.supervisor import JobSupervisor, submitted
from peerloom.services.trainer.models.collecting import Collector
from peerloom.services.trainer.models.distributing import Distributor
from peerloom.services.trainer.models.evaluating import ModelExaminer
from peerloom.services.trainer.nodes.evidence_outbox import EvidenceOutbox, Witness
from peerloom.services.trainer.nodes.recruiting import Recruiter
from peerloom.services.trainer.store import Change, TrainerStore
from peerloom.services.trainer.tables import metadata
from peerloom.services.trainer.workers.session_router import SessionRouter
from peerloom.v1.artifact_pb2 import Artifact
from peerloom.v1.node_agent_pb2 import (
    Refusal,
    RequestWorkRequest,
    RequestWorkResponse,
    StartWorkersRequest,
    StartWorkersResponse,
    StopWorkersRequest,
    StopWorkersResponse,
    WatchWorkersRequest,
    WatchWorkersResponse,
    WorkerProcess,
)
from peerloom.v1.registry_pb2 import (
    GetNodeRequest,
    GetNodeResponse,
    ListNodesRequest,
    ListNodesResponse,
    ListServicesRequest,
    ListServicesResponse,
    Node,
    NodeSpec,
    ServiceEndpoint,
    ServiceKind,
)
from peerloom.v1.selector_pb2 import (
    Evidence,
    RankedNode,
    ReportEvidenceRequest,
    ReportEvidenceResponse,
    SelectNodesRequest,
    SelectNodesResponse,
)
from peerloom.v1.trainer_pb2 import (
    Job,
    JobSpec,
    Worker,
    WorkerPrepared,
)
from peerloom.worker.evaluator.evaluation_order import Evaluated, EvaluationAnswer, EvaluationOrder

P = ParamSpec("P")
T = TypeVar("T")
DEADLINE_S = 20.0
ADDRESS = "trainer:7402"


async def until(condition: Callable[[], object]) -> None:
    """Lets all others run until something is so."""
    async with asyncio.timeout(DEADLINE_S):
        for _ in count():
            if condition():
                return
            await asyncio.sleep(0)


async def settle() -> None:
    """Lets all others run until each waits for something."""
    for _ in range(100):
        await asyncio.sleep(0)


def _new_database(clock: ManualClock) -> Database:
    database = connect_database("sqlite://", "trainer")
    verdict = Lease(database, clock).take_if_allowed()
    assert verdict.may_take, verdict.reason
    metadata.create_all(database.engine)  # what the migrations make as well, in a hundredth of their time
    return database


def ranked(name: str) -> RankedNode:
    """A node as the selector names it; its address is its name."""
    return RankedNode(node_id=f"node-{name}", name=name, address=name)


def worker(number: int, node: str = "ada") -> Worker:
    """A worker's entry in a record."""
    return Worker(worker_id=f"worker-{number}", node_id=f"node-{node}", node_name=node)


def prepared_for(spec: JobSpec, samples: int) -> WorkerPrepared:
    """What a worker says that has loaded a task of so many training samples."""
    return WorkerPrepared(
        training_samples=samples,
        epochs=spec.epochs,
        batch_size=spec.batch_size,
        learning_rate=spec.learning_rate,
    )


class InPlaceSql(SqlThread):
    """SQL on the loop itself: an in-memory database belongs to one thread."""

    async def run(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        await asyncio.sleep(0)  # as a thread would, this gives others their turn
        with storage_errors("the trainer's database"):
            return function(*args, **kwargs)


class FailingStore(TrainerStore):
    """A store that can't write as often as `failures` says."""

    failures = 0

    def write(self, changes: Sequence[Change]) -> None:
        if self.failures:
            self.failures -= 1
            raise UnavailableError("the disk is away")
        super().write(changes)


class Files:
    """An artifact store in memory: who holds what, and what is damaged."""

    def __init__(self) -> None:
        self.holds: list[tuple[str, str]] = []
        self.damaged: set[str] = set()

    def hold(self, digest: str, holder: str) -> None:
        self.holds.append((digest, holder))

    def release(self, digest: str, holder: str) -> None:
        if (digest, holder) in self.holds:
            self.holds.remove((digest, holder))

    def release_all(self, holder: str) -> None:
        self.holds = [hold for hold in self.holds if hold[1] != holder]

    def path(self, digest: str) -> Path:
        if digest in self.damaged:
            raise UnavailableError(f"{digest} is damaged")
        return Path("/artifacts") / digest


class Transfers:
    """A distributor whose transfers take no time, or wait, or fail; notes who gave and who got what."""

    def __init__(self) -> None:
        self.taken, self.given = list[tuple[str, str]](), list[tuple[str, str]]()
        self.refusing, self.bring = set[str](), self.know  # there is no object store to bring it from
        self.begun, self.goes_on = asyncio.Event(), asyncio.Event()  # taking waits, once `goes_on` is cleared
        self.goes_on.set()

    async def know(self, digest: str) -> Artifact:
        return Artifact(digest=digest)

    async def take(self, digest: str, nodes: Sequence[RankedNode], witness: Witness | None) -> Artifact:
        self.begun.set()
        await self.goes_on.wait()
        [node] = nodes
        self._check(node)
        self.taken.append((node.name, digest))
        return Artifact(digest=digest)

    async def give(self, job_id: str, node: RankedNode, digest: str, witness: Witness | None) -> None:
        self._check(node)
        self.given.append((node.name, digest))

    async def strangers(self, known: set[str], limit: int) -> list[RankedNode]:
        return [node for node in (ranked("eve"), ranked("fay")) if node.node_id not in known][:limit]

    def _check(self, node: RankedNode) -> None:
        if node.name in self.refusing:
            raise UnavailableError(f"{node.name} is away")


class _Peer:
    """What a `Peer` is, with the other side in this process."""

    def __init__(self, address: str, **methods: Any) -> None:
        self.address = address
        self.stub = SimpleNamespace(**methods)

    async def call(self, method: Any, request: Any, timeout_s: float = 10.0) -> Any:
        return await method(request)

    def stream(self, method: Any, request: Any, timeout_s: float | None = None) -> Any:
        return method(request)

    async def close(self) -> None:
        """Nothing is open."""

    async def __aenter__(self) -> "_Peer":
        return self

    async def __aexit__(self, *_: object) -> None:
        """Nothing is open."""


@dataclass
class Agent:
    """A node's agent: gives its free slots or says why not, and starts what it is told to."""

    name: str
    slots: int = 2
    refusal: int = Refusal.REFUSAL_BUSY
    is_away: bool = False
    fails_to_start: bool = False
    asked: list[RequestWorkRequest] = field(default_factory=list)
    started: list[str] = field(default_factory=list)
    secrets: dict[str, str] = field(default_factory=dict)
    stopped: list[str] = field(default_factory=list)  # jobs, or single workers
    on_start: Callable[[str], object] = lambda worker_id: None
    ends: "asyncio.Queue[WatchWorkersResponse | Exception]" = field(default_factory=asyncio.Queue)
    watched: asyncio.Event = field(default_factory=asyncio.Event)

    def peer(self) -> NodeAgentPeer:
        """How the trainer reaches it."""
        methods = {
            "RequestWork": self._request_work,
            "StartWorkers": self._start_workers,
            "StopWorkers": self._stop_workers,
            "WatchWorkers": self._watch_workers,
        }
        return cast("NodeAgentPeer", _Peer(self.name, **methods))

    def end(self, worker_id: str, exit_code: int) -> None:
        """One of its processes ends."""
        process = WorkerProcess(worker_id=worker_id)
        self.ends.put_nowait(WatchWorkersResponse(worker=process, ended=True, exit_code=exit_code))

    def _check(self) -> None:
        if self.is_away:
            raise UnavailableError(f"{self.name} is away")

    async def _request_work(self, request: RequestWorkRequest) -> RequestWorkResponse:
        self._check()
        assert request.work.trainer_address == ADDRESS
        self.asked.append(request)
        given = min(self.slots, request.max_slots)
        if not given:
            return RequestWorkResponse(refusal=cast("Any", self.refusal), reason="no slot is free")
        reservation = f"reservation-{self.name}"
        return RequestWorkResponse(
            accepted_slots=given, reservation_id=reservation, reason="yes", accelerator_kind="cpu"
        )

    async def _start_workers(self, request: StartWorkersRequest) -> StartWorkersResponse:
        self._check()
        if self.fails_to_start:
            raise UnavailableError("no process could be started")
        self.started += request.worker_ids
        self.secrets.update(zip(request.worker_ids, request.worker_secrets, strict=True))
        for worker_id in request.worker_ids:
            self.on_start(worker_id)
        return StartWorkersResponse()

    async def _stop_workers(self, request: StopWorkersRequest) -> StopWorkersResponse:
        self._check()
        self.stopped += request.worker_ids or [request.job_id]
        return StopWorkersResponse()

    async def _watch_workers(self, request: WatchWorkersRequest) -> AsyncIterator[WatchWorkersResponse]:
        self.watched.set()
        self._check()
        while True:
            event = await self.ends.get()
            if isinstance(event, Exception):
                raise event
            yield event


class Neighbours(Dialer):
    """The registry, the selector and the agents that a trainer calls."""

    def __init__(self, *agents: Agent) -> None:
        super().__init__()
        self.agents = {agent.name: agent for agent in agents}
        self.unknown: set[str] = set()  # names that no node has
        self.registered: Sequence[str] = ()  # nodes that the registry lists, all away
        self.moved: dict[str, str] = {}  # nodes that the registry has at other addresses, by name
        self.selector_is_away = False
        self.selector_refuses: PeerloomError | None = None
        self.passed_over: dict[str, Any] = {}
        self.evidence: list[Evidence] = []

    def node_agent(self, address: str) -> NodeAgentPeer:
        return self.agents[address].peer()

    def registry(self, address: str) -> RegistryPeer:
        return cast(
            "RegistryPeer",
            _Peer(
                address,
                ListServices=self._list_services,
                ListNodes=self._list_nodes,
                GetNode=self._get_node,
            ),
        )

    def selector(self, address: str) -> SelectorPeer:
        return cast(
            "SelectorPeer", _Peer(address, SelectNodes=self._select, ReportEvidence=self._take_evidence)
        )

    async def _list_services(self, request: ListServicesRequest) -> ListServicesResponse:
        selector = ServiceEndpoint(kind=ServiceKind.SERVICE_KIND_SELECTOR, address="selector:7401")
        return ListServicesResponse(services=[] if self.selector_is_away else [selector])

    async def _list_nodes(self, request: ListNodesRequest) -> ListNodesResponse:
        listed = [] if request.states else self.registered[: request.page_size]
        return ListNodesResponse(
            nodes=[Node(node_id=f"node-{name}", spec=NodeSpec(name=name)) for name in listed]
        )

    async def _get_node(self, request: GetNodeRequest) -> GetNodeResponse:
        if request.node in self.unknown:
            raise NotFoundError.of_name("node", request.node, self.agents)
        spec = NodeSpec(name=(name := request.node.removeprefix("node-")), address=self.moved.get(name, name))
        return GetNodeResponse(node=Node(node_id=request.node, spec=spec))

    async def _select(self, request: SelectNodesRequest) -> SelectNodesResponse:
        if self.selector_refuses is not None:
            raise self.selector_refuses
        named = [ranked(name) for name in self.agents if f"node-{name}" not in request.excluded_nodes]
        return SelectNodesResponse(nodes=named, **self.passed_over)

    async def _take_evidence(self, request: ReportEvidenceRequest) -> ReportEvidenceResponse:
        self.evidence += request.evidence
        return ReportEvidenceResponse()


class ScriptedEvaluator:
    """Answers each order with `answer`, what honest workers tell of, or waits, once `goes_on` is cleared."""

    def __init__(self) -> None:
        self.answer: EvaluationAnswer = Evaluated("accuracy", 0.9, 0.0, 40, 10)
        self.orders: list[EvaluationOrder] = []
        self.is_prepared = False
        self.goes_on = asyncio.Event()
        self.goes_on.set()

    def prepare(self) -> None:
        self.is_prepared = True

    async def evaluate(self, order: EvaluationOrder) -> EvaluationAnswer:
        self.orders.append(order)
        await self.goes_on.wait()
        return self.answer

    async def keep(self) -> None:
        await asyncio.Event().wait()

    async def close(self) -> None:
        """Nothing is open."""


class ScriptedExaminer(ModelExaminer):
    """The real one, without files: there are none to copy."""

    async def _order(self, job: Job, model: Path, folder: Path) -> EvaluationOrder:
        arguments = dict(job.spec.task_arguments)
        return EvaluationOrder(job.spec.task, arguments, str(model), {}, Grant(str(folder)), 1.0)


class Room:
    """One trainer: its store, its commit queue, its neighbours, and what its jobs need."""

    def __init__(self, *agents: Agent, config: TrainerConfig | None = None) -> None:
        self.clock = ManualClock()
        self.database = _new_database(self.clock)
        self.store = FailingStore(self.database)
        self.sql = InPlaceSql(self.database)
        self.neighbours = Neighbours(*agents)
        self.directory = Directory(self.neighbours, "registry:7400")
        self.reporter = EvidenceReporter(EvidenceOutbox(self.store, self.sql), self.directory.selector)
        self.pauses: list[float] = []
        self.queue = CommitQueue(self.store, self.sql, self.clock, self.reporter, self._pause)
        self.router = SessionRouter()
        self.files, self.transfers = Files(), Transfers()
        self.foreign_models: set[str] = set()  # digests of files that hold other parameters than told
        distributor = cast("Distributor", self.transfers)
        self.recruiter = Recruiter(self.directory, distributor, self.neighbours, self.clock, 5.0, ADDRESS, 1)
        config = config or TrainerConfig()
        artifacts, self.evaluator = cast("ArtifactStore", self.files), ScriptedEvaluator()
        examiner = ScriptedExaminer(config, artifacts, distributor, self.evaluator, self.clock)
        self.collector = Collector(artifacts, distributor, examiner, 60.0, self._check_model)
        parts = (self.router, self.recruiter, self.collector, self.reporter)
        self.dependencies = JobDependencies(config, self.clock, *parts)
        self.jobs = JobSupervisor(
            self.store,
            self.sql,
            self.queue,
            SubmissionChecks(self.directory, distributor),
            self.dependencies,
            self.clock,
        )

    def _check_model(self, path: Path, agreed: str) -> RawInput | None:
        if path.name in self.foreign_models:
            raise DataLossError(f"its parameters are not {agreed[:12]}", reason="MODEL_DIFFERS")
        return None

    async def _pause(self, seconds: float) -> None:
        self.pauses.append(seconds)

    def new_record(self, job_id: str = "job-1", **spec: Any) -> JobRecord:
        """The open record of a job that was handed in."""
        full = complete_spec(JobSpec(**{"task": "digits", "epochs": 1, **spec}))
        job = self.store.add_job(submitted(job_id, full, self.clock.wall_s()), f"request-{job_id}")
        return self.queue.open(job, 0)

    def witness(self, record: JobRecord) -> Witness:
        """Who sees what nodes do for a job."""
        return Witness(record.job_id, self.clock, record.evidence_given)

    def kinds_written(self, job_id: str = "job-1") -> list[str]:
        """The kinds of the events that are in the database, in order."""
        events = self.store.read_events(job_id, 0, 1000)
        assert [event.sequence for event in events] == list(range(1, len(events) + 1))
        return [str(event.WhichOneof("event")) for event in events]

    def evidence_kept(self) -> Collection[Evidence]:
        """What the selector has not acknowledged."""
        return self.store.pending_evidence(1000)
