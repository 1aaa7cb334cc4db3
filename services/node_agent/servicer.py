"""NodeAgentService: translates between messages and the agent's own types."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import aclosing, nullcontext, suppress
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any

from grpc import aio

from peerloom.artifacts.store import ArtifactStore
from peerloom.errors import FailedPreconditionError, InvalidArgumentError
from peerloom.kit import tracing
from peerloom.kit.checks import (
    check_address,
    check_name,
    check_range,
    check_request_id,
    check_secret,
    check_text,
)
from peerloom.kit.clock import Clock
from peerloom.kit.interceptors import caller
from peerloom.kit.job_inputs import check_inputs
from peerloom.kit.logs import get_logger
from peerloom.services.node_agent.config import NodeConfig
from peerloom.services.node_agent.inference_process import InferenceServer
from peerloom.services.node_agent.membership.listed_trainers import ListedTrainers
from peerloom.services.node_agent.membership.node_status import NodeStatus
from peerloom.services.node_agent.owner.enforcement import PolicyEnforcer
from peerloom.services.node_agent.owner.inventory import LentMachine, is_known_task
from peerloom.services.node_agent.tunnels.relay_server import RelayServer
from peerloom.services.node_agent.tunnels.worker_ports import WorkerPorts
from peerloom.services.node_agent.work_requests import NodeView, WorkRequest, decide
from peerloom.services.node_agent.workers.job_trainers import JobTrainer
from peerloom.services.node_agent.workers.local_pool import LocalWorkerPool, PooledWorker, PoolEvent
from peerloom.services.node_agent.workers.slots import Reservation, SlotTable
from peerloom.services.node_agent.workers.worker_logs import LogFolder
from peerloom.v1.node_agent_pb2 import (
    ForwardPortRequest,
    ForwardPortResponse,
    GetWorkerLogsRequest,
    GetWorkerLogsResponse,
    HandshakeRequest,
    HandshakeResponse,
    OpenTunnelRequest,
    OpenTunnelResponse,
    RequestWorkRequest,
    RequestWorkResponse,
    StartInferenceRequest,
    StartInferenceResponse,
    StartWorkersRequest,
    StartWorkersResponse,
    StopWorkersRequest,
    StopWorkersResponse,
    WatchWorkersRequest,
    WatchWorkersResponse,
    WorkerProcess,
)
from peerloom.v1.node_agent_pb2_grpc import NodeAgentServiceServicer
from peerloom.v1.registry_pb2 import NodeSpec
from peerloom.worker.assignment import Work
from peerloom.worker.data_roots import foreign_paths

_log = get_logger()
_Context = aio.ServicerContext[Any, Any]
_DEFAULT_GRACE_S = 5.0
_FOLLOW_INTERVAL_S = 0.2


@dataclass(frozen=True)
class AgentDependencies:
    """All that answers a call. `spec` says what the node is, `available_bytes` how much memory is free.

    `is_plain` says that workers exchange gradients in the clear; `relay` is None where it isn't offered.
    """

    config: NodeConfig
    machine: LentMachine
    spec: NodeSpec
    status: NodeStatus
    slots: SlotTable
    pool: LocalWorkerPool
    policy: PolicyEnforcer
    logs: LogFolder
    artifacts: ArtifactStore
    inference: InferenceServer | None
    is_plain: bool
    worker_ports: WorkerPorts
    relay: RelayServer | None
    trainers: ListedTrainers
    available_bytes: Callable[[], int]
    clock: Clock
    stopping: asyncio.Event


class NodeAgentServicer(NodeAgentServiceServicer):
    """Translates; `work_requests` decides, slots and pool do."""

    def __init__(self, agent: AgentDependencies) -> None:
        self._agent = agent
        self._version = version("peerloom")

    async def Handshake(self, request: HandshakeRequest, context: _Context) -> HandshakeResponse:
        check_text("caller", request.caller, high=128)
        agent, spec = self._agent, self._agent.spec
        _log.debug("hands_shaken", caller=request.caller)
        return HandshakeResponse(
            node_id=agent.status.node_id,
            name=spec.name,
            slots=agent.slots.count(agent.clock.monotonic_s()),
            accelerators=spec.accelerators,
            speed=agent.status.speed,
            artifact_count=agent.artifacts.count,
            version=self._version,
            draining=agent.status.is_draining or bool(agent.policy.withheld),
        )

    async def RequestWork(self, request: RequestWorkRequest, context: _Context) -> RequestWorkResponse:
        check_name("job_id", request.job_id)
        check_range("max_slots", request.max_slots, 1, 2**32 - 1)  # as the schema says: we give what we can
        check_text("accelerator_kind", request.accelerator_kind, high=63)
        check_request_id("request_id", request.request_id)
        work = _work_of(request)
        task_known = await asyncio.to_thread(is_known_task, work.task)
        roots = self._agent.config.data_roots()
        foreign = await asyncio.to_thread(foreign_paths, work.task, work.task_arguments, roots)
        trainer_doubt = await self._agent.trainers.why_not(work.trainer_address)
        slots, now_s = self._agent.slots, self._agent.clock.monotonic_s()
        held = slots.find_request(request.request_id, now_s)
        if held is not None:
            return self._accepted(held, "The same request was accepted before.")
        wanted = WorkRequest(
            request.job_id, request.max_slots, request.accelerator_kind, request.memory_bytes, work
        )
        decision = decide(wanted, self._view(request.job_id, task_known, foreign, trainer_doubt, now_s))
        tracing.note(node=self._agent.spec.name, accepted_slots=decision.slots, reason=decision.reason)
        _log.info("work_answered", job_id=request.job_id, accepted=decision.slots, reason=decision.reason)
        if not decision.slots:
            return RequestWorkResponse(refusal=decision.refusal, reason=decision.reason)
        hold_s = self._agent.config.reservation_s
        held = slots.reserve(
            request.job_id, request.request_id, work, decision.slots, request.memory_bytes, now_s, hold_s
        )
        return self._accepted(held, decision.reason)

    async def StartWorkers(self, request: StartWorkersRequest, context: _Context) -> StartWorkersResponse:
        check_name("reservation_id", request.reservation_id)
        now_s = self._agent.clock.monotonic_s()
        workers = await self._agent.pool.start(request.reservation_id, _secrets_of(request), now_s)
        return StartWorkersResponse(workers=[_process_of(worker) for worker in workers])

    async def StopWorkers(self, request: StopWorkersRequest, context: _Context) -> StopWorkersResponse:
        check_name("job_id", request.job_id)
        check_range("grace_s", request.grace_s, 0, 600)
        self._agent.pool.trainers.check(request.job_id, request.trainer_epoch)
        grace_s, only = request.grace_s or _DEFAULT_GRACE_S, set(request.worker_ids)
        return StopWorkersResponse(stopped=await self._agent.pool.stop(request.job_id, grace_s, only))

    async def WatchWorkers(
        self, request: WatchWorkersRequest, context: _Context
    ) -> AsyncIterator[WatchWorkersResponse]:
        check_name("job_id", request.job_id)
        if request.trainer_address:
            await self._agent.trainers.check_listed(request.trainer_address)
            told = JobTrainer(request.trainer_address, request.trainer_epoch)
            await self._agent.pool.follow(request.job_id, told)
        pool, job_id = self._agent.pool, request.job_id
        with pool.trainers.watching(job_id) if request.trainer_address else nullcontext():
            async for event in pool.watch(job_id):
                yield _message_of(event) if event else WatchWorkersResponse(has_told_all=True)

    async def GetWorkerLogs(
        self, request: GetWorkerLogsRequest, context: _Context
    ) -> AsyncIterator[GetWorkerLogsResponse]:
        check_name("job_id", request.job_id)
        agent = self._agent
        reader = await asyncio.to_thread(agent.logs.read, request.job_id, request.tail_lines)
        last = False
        while not last:
            running = agent.pool.is_running(request.job_id)
            last = not (request.follow and running) or agent.stopping.is_set()
            for worker_id, line in await asyncio.to_thread(reader.read_new, last=last):
                yield GetWorkerLogsResponse(worker_id=worker_id, line=line)
            if not last:
                with suppress(TimeoutError):
                    await asyncio.wait_for(agent.stopping.wait(), _FOLLOW_INTERVAL_S)

    async def StartInference(
        self, request: StartInferenceRequest, context: _Context
    ) -> StartInferenceResponse:
        agent = self._agent
        if agent.inference is None:
            raise FailedPreconditionError(
                f"The owner of {agent.spec.name} lends it to no inference (inference = false).",
                reason="NO_INFERENCE",
            )
        if agent.status.is_draining or agent.stopping.is_set():
            raise FailedPreconditionError(
                f"{agent.spec.name} takes no new work: it is being drained. Ask another node, or end that: "
                f"peerloom nodes drain {agent.spec.name} --undo",
                reason="DRAINING",
            )
        if agent.policy.withheld:
            raise FailedPreconditionError(agent.policy.withheld, reason="OWNER_LIMITS")
        address, start_s = await agent.inference.start()
        return StartInferenceResponse(address=address, start_s=start_s)

    async def ForwardPort(self, request: ForwardPortRequest, context: _Context) -> ForwardPortResponse:
        check_range("port", request.port, 1, 65_535)
        address = await self._agent.worker_ports.forward(caller.get().principal, request.port)
        return ForwardPortResponse(address=address)

    async def OpenTunnel(
        self, request_iterator: AsyncIterator[OpenTunnelRequest], context: _Context
    ) -> AsyncIterator[OpenTunnelResponse]:
        agent, who = self._agent, caller.get()
        if agent.relay is None:
            raise FailedPreconditionError(
                f"{agent.spec.name} passes nothing on: its owner doesn't offer that (relay = false).",
                reason="NO_RELAY",
            )
        node = who.principal.uri if who.principal is not None else ""
        async with aclosing(agent.relay.serve(node, who.key, request_iterator)) as answers:
            async for answer in answers:
                yield answer

    def _view(
        self, job_id: str, task_known: bool, foreign: Mapping[str, str], trainer_doubt: str, now_s: float
    ) -> NodeView:
        agent = self._agent
        return NodeView(
            total_slots=agent.slots.total,
            free_slots=len(agent.slots.free(now_s)),
            accelerator_kind=agent.machine.accelerator_kind,
            device_memory_bytes=agent.machine.device_memory_bytes,
            available_bytes=agent.available_bytes(),
            waiting_bytes=agent.slots.waiting_bytes(now_s),
            promised_bytes=agent.slots.promised_bytes(now_s),
            memory_limit_bytes=agent.config.memory_limit_bytes,
            draining=agent.status.is_draining or agent.stopping.is_set(),
            withheld=agent.policy.why_not(job_id),
            torch_installed=agent.machine.has_torch(),
            task_known=task_known,
            allow_code=agent.config.allow_code,
            foreign_paths=foreign,
            trainer_doubt=trainer_doubt,
            plain_via=agent.status.via if agent.is_plain else "",
        )

    def _accepted(self, held: Reservation, reason: str) -> RequestWorkResponse:
        return RequestWorkResponse(
            accepted_slots=len(held.slots),
            reservation_id=held.reservation_id,
            reservation_s=self._agent.config.reservation_s,
            reason=reason,
            accelerator_kind=self._agent.machine.accelerator_kind,
            slot_memory_bytes=self._agent.config.memory_limit_bytes // max(1, self._agent.slots.total),
        )


def _work_of(request: RequestWorkRequest) -> Work:
    """Raises InvalidArgumentError naming the field that is outside its limits."""
    told = request.work
    check_address("work.trainer_address", told.trainer_address)
    check_inputs("work", told)
    what = told.task, dict(told.task_arguments), told.code_digest, told.initial_model_digest
    script_arguments = list(told.script.arguments) if told.HasField("script") else None
    return Work(told.trainer_address, *what, script_arguments)


def _secrets_of(request: StartWorkersRequest) -> dict[str, str]:
    """Each worker's secret by its id. Raises InvalidArgumentError for ids and secrets that don't pair."""
    ids, secrets = request.worker_ids, request.worker_secrets
    if len(secrets) != len(ids):
        limit = f"as many as there are worker_ids, {len(ids)}"
        raise InvalidArgumentError.of_field("worker_secrets (entries)", len(secrets), limit)
    for worker_id, secret in zip(ids, secrets, strict=True):
        check_name("worker_ids", worker_id)
        check_secret("worker_secrets", secret)
    if len(set(ids)) < len(ids):
        raise InvalidArgumentError.of_field("worker_ids", list(ids), "different from each other")
    return dict(zip(ids, secrets, strict=True))


def _process_of(worker: PooledWorker) -> WorkerProcess:
    return WorkerProcess(
        worker_id=worker.worker_id, job_id=worker.job_id, pid=worker.process.pid, slot=worker.slot
    )


def _message_of(event: PoolEvent) -> WatchWorkersResponse:
    exit_code = event.worker.exit_code or 0 if event.ended else 0
    return WatchWorkersResponse(
        worker=_process_of(event.worker),
        ended=event.ended,
        exit_code=exit_code,
        reason=event.worker.why_ended if event.ended else "",
    )
