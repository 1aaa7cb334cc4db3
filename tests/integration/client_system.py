"""A small Peerloom system for the SDK's tests: real sockets, and streams that break when the test says so.

It runs on a thread and loop of its own, as the services would in their processes, so that a test may block
its own thread. What it says is scripted; how it says it (pages, sequence numbers, errors as statuses, resumed
streams, artifacts from a real store) is what the schema promises.
"""

import asyncio
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from pathlib import Path
from typing import Any, TypeVar

from grpc import aio
from grpc_health.v1 import health, health_pb2, health_pb2_grpc

from peerloom.artifacts.servicer import ArtifactServicer
from peerloom.artifacts.store import ArtifactStore
from peerloom.errors import NotFoundError, UnavailableError
from peerloom.kit.interceptors import CallInterceptor, Gate
from peerloom.kit.paging import decode_token, encode_token
from peerloom.v1 import registry_pb2, selector_pb2, trainer_pb2
from peerloom.v1.artifact_pb2_grpc import add_ArtifactServiceServicer_to_server
from peerloom.v1.registry_pb2_grpc import RegistryServiceServicer, add_RegistryServiceServicer_to_server
from peerloom.v1.selector_pb2_grpc import SelectorServiceServicer, add_SelectorServiceServicer_to_server
from peerloom.v1.trainer_pb2_grpc import TrainerServiceServicer, add_TrainerServiceServicer_to_server

T = TypeVar("T")
LIMIT_S = 60.0
FINAL = trainer_pb2.JOB_STATE_SUCCEEDED
# Smaller than what clients ask for, so that lists take several pages; the schema says "at most".
PAGE = 2


def page_of(items: list[Any], request: Any, answer: Any, field: str) -> Any:
    """One page of `items`, put into the `field` of `answer`."""
    start = decode_token(request.page_token) or 0
    size = min(PAGE, request.page_size or 100)
    getattr(answer, field).extend(items[start : start + size])
    if start + size < len(items):
        answer.next_page_token = encode_token(start + size)
    return answer


class Registry(RegistryServiceServicer):
    """Knows the nodes that the test gave it, and where the services are."""

    def __init__(self) -> None:
        self.nodes: dict[str, registry_pb2.Node] = {}
        self.past: list[registry_pb2.Session] = []
        self.services: dict[int, str] = {}

    async def ListServices(self, request: Any, context: Any) -> Any:  # noqa: N802  # the schema's name
        answer = registry_pb2.ListServicesResponse()
        for kind, address in self.services.items():
            answer.services.add(kind=kind, address=address)
        return answer

    async def ListNodes(self, request: Any, context: Any) -> Any:  # noqa: N802  # the schema's name
        found = [
            node
            for _, node in sorted(self.nodes.items())
            if (not request.states or node.state in request.states)
            and request.labels.items() <= node.spec.labels.items()
        ]
        return page_of(found, request, registry_pb2.ListNodesResponse(), "nodes")

    async def ListHolders(self, request: Any, context: Any) -> Any:  # noqa: N802  # the schema's name
        return registry_pb2.ListHoldersResponse()  # the trainer only, which the client asks itself

    async def GetNode(self, request: Any, context: Any) -> Any:  # noqa: N802  # the schema's name
        return registry_pb2.GetNodeResponse(node=self._node(request.node))

    async def Drain(self, request: Any, context: Any) -> Any:  # noqa: N802  # the schema's name
        self._node(request.node).draining = not request.undo
        return registry_pb2.DrainResponse(node=self._node(request.node))

    async def ListSessions(self, request: Any, context: Any) -> Any:  # noqa: N802  # the schema's name
        found = [each for each in self.past if request.node in ("", each.node_name)]
        return page_of(found, request, registry_pb2.ListSessionsResponse(), "sessions")

    async def ListInterruptions(self, request: Any, context: Any) -> Any:  # noqa: N802  # the schema's name
        found = [each for each in self.past if request.node in ("", each.node_name) and each.interrupted]
        return page_of(found, request, registry_pb2.ListInterruptionsResponse(), "interruptions")

    def _node(self, name: str) -> registry_pb2.Node:
        if name not in self.nodes:
            raise NotFoundError.of_name("node", name, self.nodes)
        return self.nodes[name]


class Selector(SelectorServiceServicer):
    """Holds the history of each node's belief, newest first."""

    def __init__(self) -> None:
        self.history: dict[str, list[selector_pb2.Belief]] = {}

    async def ListBeliefs(self, request: Any, context: Any) -> Any:  # noqa: N802  # the schema's name
        newest = sorted((past[0] for past in self.history.values()), key=lambda each: -each.belief)
        return page_of(newest, request, selector_pb2.ListBeliefsResponse(), "beliefs")

    async def GetBelief(self, request: Any, context: Any) -> Any:  # noqa: N802  # the schema's name
        return selector_pb2.GetBeliefResponse(belief=self._past(request.node)[0])

    async def ListBeliefHistory(self, request: Any, context: Any) -> Any:  # noqa: N802  # the schema's name
        answer = selector_pb2.ListBeliefHistoryResponse()
        return page_of(self._past(request.node), request, answer, "updates")

    async def ListPolicies(self, request: Any, context: Any) -> Any:  # noqa: N802  # the schema's name
        answer = selector_pb2.ListPoliciesResponse()
        answer.policies.add(name="thesis", description="as printed", source="the thesis", is_default=True)
        return answer

    def _past(self, name: str) -> list[selector_pb2.Belief]:
        if name not in self.history:
            raise NotFoundError.of_name("node", name, self.history)
        return self.history[name]


class Trainer(TrainerServiceServicer):
    """Keeps jobs and their logs of events over its own restarts, as a database would.

    `break_after` is a set of sequence numbers: a watch that has just sent one of them breaks, once for each.
    `repeats` makes it send the last event that was seen once more when a watch resumes.
    """

    def __init__(self) -> None:
        self.jobs: dict[str, trainer_pb2.Job] = {}
        self.events: dict[str, list[trainer_pb2.WatchJobResponse]] = {}
        self.lines: list[trainer_pb2.GetJobLogsResponse] = []
        self.submitted: list[trainer_pb2.SubmitJobRequest] = []
        self.watched_after: list[int] = []
        self.break_after: set[int] = set()
        self.repeats = False
        self.changed = asyncio.Condition()
        # Told when a watch has sent all there is and waits, and when a watch was left by its client.
        self.on_idle: Callable[[], object] = lambda: None
        self.left = threading.Event()

    async def add(self, job_id: str, state: "trainer_pb2.JobState.ValueType", **event: Any) -> None:
        """Moves a job to `state` with one event, a change of state unless `event` is given."""
        async with self.changed:
            job = self.jobs.setdefault(job_id, trainer_pb2.Job(job_id=job_id))
            if job.state != state and not event:
                event = {"state_change": trainer_pb2.StateChange(state=state, reason="scripted")}
            job.state, job.state_reason = state, "scripted"
            log = self.events.setdefault(job_id, [])
            log.append(trainer_pb2.WatchJobResponse(sequence=len(log) + 1, job_id=job_id, **event))
            self.changed.notify_all()

    async def SubmitJob(self, request: Any, context: Any) -> Any:  # noqa: N802  # the schema's name
        self.submitted.append(request)
        job_id = f"job-{len(self.submitted):012d}"
        await self.add(job_id, trainer_pb2.JOB_STATE_QUEUED)
        self.jobs[job_id].spec.CopyFrom(request.spec)
        return trainer_pb2.SubmitJobResponse(job=self.jobs[job_id])

    async def GetJob(self, request: Any, context: Any) -> Any:  # noqa: N802  # the schema's name
        return trainer_pb2.GetJobResponse(job=self._job(request.job_id))

    async def ListJobs(self, request: Any, context: Any) -> Any:  # noqa: N802  # the schema's name
        newest = [
            each
            for each in reversed(self.jobs.values())
            if not request.states or each.state in request.states
        ]
        return page_of(newest, request, trainer_pb2.ListJobsResponse(), "jobs")

    async def CancelJob(self, request: Any, context: Any) -> Any:  # noqa: N802  # the schema's name
        job = self._job(request.job_id)
        await self.add(job.job_id, trainer_pb2.JOB_STATE_CANCELLED)
        return trainer_pb2.CancelJobResponse(job=job)

    async def WatchJob(self, request: Any, context: Any) -> AsyncIterator[Any]:  # noqa: N802  # the schema's name
        log = self.events[self._job(request.job_id).job_id]
        self.watched_after.append(request.after_sequence)
        sent = max(0, request.after_sequence - self.repeats)
        try:
            while True:
                for event in log[sent:]:
                    yield event
                    sent = event.sequence
                    if sent in self.break_after:
                        self.break_after.remove(sent)
                        raise UnavailableError("the stream was cut by the test")
                if self.jobs[request.job_id].state >= FINAL:
                    return
                self.on_idle()
                async with self.changed:
                    while len(log) == sent:
                        await self.changed.wait()
        except asyncio.CancelledError:
            self.left.set()
            raise

    async def GetJobLogs(self, request: Any, context: Any) -> AsyncIterator[Any]:  # noqa: N802  # the schema's name
        for line in self.lines[-request.tail_lines :]:
            yield line

    async def ListModels(self, request: Any, context: Any) -> Any:  # noqa: N802  # the schema's name
        models = [
            trainer_pb2.Model(artifact=job.result.model, job_id=job.job_id, task=job.spec.task)
            for job in self.jobs.values()
            if job.HasField("result")
        ]
        return page_of(models, request, trainer_pb2.ListModelsResponse(), "models")

    def _job(self, job_id: str) -> trainer_pb2.Job:
        if job_id not in self.jobs:
            raise NotFoundError.of_name("job", job_id, self.jobs)
        return self.jobs[job_id]


class System:
    """All three at free ports on loopback. Use as a context manager; `address` is the registry's."""

    def __init__(self, folder: Path) -> None:
        self.store = ArtifactStore(folder, 1 << 30)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="system")
        self._servers: dict[str, tuple[aio.Server, str]] = {}

    def __enter__(self) -> "System":
        self._thread.start()
        self.registry, self.selector, self.trainer = self.run(self._make())
        for name in ("registry", "selector", "trainer"):
            self.start(name)
        return self

    def __exit__(self, *_: object) -> None:
        for name in list(self._servers):
            self.stop(name)
        self.run(self._loop.shutdown_default_executor())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(LIMIT_S)
        self._loop.close()

    @property
    def address(self) -> str:
        """The one address a user knows."""
        return self._servers["registry"][1]

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Runs a coroutine on the system's own loop."""
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(LIMIT_S)

    def start(self, name: str) -> str:
        """Starts a service at a free port and announces it; returns its address."""
        self._servers[name] = self.run(self._serve(name))
        kinds = {"selector": registry_pb2.SERVICE_KIND_SELECTOR, "trainer": registry_pb2.SERVICE_KIND_TRAINER}
        if name in kinds:
            self.registry.services[kinds[name]] = self._servers[name][1]
        return self._servers[name][1]

    def start_another(self, name: str) -> str:
        """Starts a second one, announced instead of the first, which goes on until the end."""
        self._servers[f"first {name}"] = self._servers.pop(name)
        return self.start(name)

    def stop(self, name: str) -> None:
        """Ends a service at once: its lines break. Its announcement stands, as after a SIGKILL."""
        server, _ = self._servers.pop(name)
        self.run(server.stop(None))

    def add(self, job_id: str, state: "trainer_pb2.JobState.ValueType", **event: Any) -> None:
        """`Trainer.add` from the test's thread."""
        self.run(self.trainer.add(job_id, state, **event))

    async def _make(self) -> tuple[Registry, Selector, Trainer]:
        return Registry(), Selector(), Trainer()

    async def _serve(self, name: str) -> tuple[aio.Server, str]:
        server, servicer = aio.server(interceptors=[CallInterceptor(Gate())]), health.aio.HealthServicer()
        health_pb2_grpc.add_HealthServicer_to_server(servicer, server)
        set_health: Callable[..., Awaitable[None]] = servicer.set
        await set_health("", health_pb2.HealthCheckResponse.SERVING)
        if name == "registry":
            add_RegistryServiceServicer_to_server(self.registry, server)
        elif name == "selector":
            add_SelectorServiceServicer_to_server(self.selector, server)
        else:
            add_TrainerServiceServicer_to_server(self.trainer, server)
            add_ArtifactServiceServicer_to_server(ArtifactServicer(self.store), server)
        port = server.add_insecure_port("127.0.0.1:0")
        await server.start()
        return server, f"127.0.0.1:{port}"
