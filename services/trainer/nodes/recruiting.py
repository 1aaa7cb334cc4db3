"""One round of asking: whom the selector names, what they answer, and the workers that come of it."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from peerloom.errors import PeerloomError
from peerloom.kit.clock import Clock
from peerloom.kit.dialing import Dialer, NodeAgentPeer
from peerloom.kit.directory import Directory
from peerloom.kit.ids import new_request_id, new_worker_id
from peerloom.kit.job_inputs import inputs_of
from peerloom.kit.limits import MAX_SLOTS
from peerloom.services.trainer.jobs.audit_entries import dismissed_nodes
from peerloom.services.trainer.jobs.plan_entries import unfit_nodes
from peerloom.services.trainer.models.distributing import Distributor
from peerloom.services.trainer.nodes.evidence_outbox import Witness
from peerloom.services.trainer.nodes.offers import Offer, counts_as_unfinished, take_slots
from peerloom.v1.node_agent_pb2 import (
    RequestWorkRequest,
    RequestWorkResponse,
    StartWorkersRequest,
    StopWorkersRequest,
    WatchWorkersRequest,
    Work,
)
from peerloom.v1.registry_pb2 import GetNodeRequest
from peerloom.v1.selector_pb2 import RankedNode, SelectNodesRequest, SelectNodesResponse
from peerloom.v1.trainer_pb2 import Job, NodeAnswer, Worker

STOP_LIMIT_S = 8.0  # above an agent's grace of 5 s; a dead agent holds the job's end up for so long
# Makes the secrets of workers that are about to be started on a node, in the order of their ids.
Admit = Callable[[Sequence[str], str], Awaitable[list[str]]]


@dataclass
class Answered:
    """One node's answer with what it gave."""

    answer: NodeAnswer
    response: RequestWorkResponse = field(default_factory=RequestWorkResponse)


class Recruiter:
    """Finds slots for jobs and turns them into workers."""

    def __init__(
        self,
        directory: Directory,
        distributor: Distributor,
        dialer: Dialer,
        clock: Clock,
        request_timeout_s: float,
        trainer_address: str,
        trainer_epoch: int,
    ) -> None:
        self._clock = clock
        self._trainer_address, self._trainer_epoch = trainer_address, trainer_epoch
        self._directory = directory
        self._distributor = distributor
        self._dialer = dialer
        self._timeout_s = request_timeout_s

    def agent(self, address: str) -> NodeAgentPeer:
        """A node's agent."""
        return self._dialer.node_agent(address)

    def watch_request(self, job_id: str) -> WatchWorkersRequest:
        """Asks a node's agent to tell of a job's workers, and to send them here."""
        return WatchWorkersRequest(
            job_id=job_id, trainer_address=self._trainer_address, trainer_epoch=self._trainer_epoch
        )

    async def address_of(self, node_id: str) -> str:
        """Where a node is reached now; "" while the registry can't say: it has a relay, or another one."""
        registry, request = self._directory.registry, GetNodeRequest(node=node_id)
        try:
            return (await registry.call(registry.stub.GetNode, request, self._timeout_s)).node.spec.address
        except PeerloomError:
            return ""

    async def select(self, job: Job) -> SelectNodesResponse:
        """Asks the selector whom to ask; not those who lied in this job, or can't do it.

        Raises UnavailableError, or NotFoundError for the policy.
        """
        selector = await self._directory.selector()
        request = SelectNodesRequest(
            requirements=job.spec.requirements,
            request_budget=job.spec.request_budget,
            policy=job.spec.policy,
            excluded_nodes=sorted(dismissed_nodes(job) | unfit_nodes(job)),
        )
        return await selector.call(selector.stub.SelectNodes, request, self._timeout_s)

    async def ask_all(
        self, job: Job, nodes: list[RankedNode], wanted: int, witness: Witness | None
    ) -> list[Answered]:
        """Asks these nodes at once for `wanted` slots; with a witness, refusals and silence are evidence."""
        return list(await asyncio.gather(*(self._ask(job, node, wanted, witness) for node in nodes)))

    async def _ask(self, job: Job, node: RankedNode, wanted: int, witness: Witness | None) -> Answered:
        request = RequestWorkRequest(
            job_id=job.job_id,
            max_slots=min(wanted, MAX_SLOTS),
            accelerator_kind=job.spec.requirements.accelerator_kind,
            request_id=new_request_id(),
            work=Work(
                trainer_address=self._trainer_address,
                task=job.spec.task,
                task_arguments=job.spec.task_arguments,
                code_digest=job.spec.code_digest,
                initial_model_digest=job.spec.initial_model_digest,
                script=job.spec.script if job.spec.HasField("script") else None,
            ),
        )
        started_s = self._clock.monotonic_s()
        try:
            async with self.agent(node.address) as agent:
                response = await agent.call(agent.stub.RequestWork, request, self._timeout_s)
        except PeerloomError as error:
            answer = NodeAnswer(
                node=node, reason=error.message, answer_s=self._clock.monotonic_s() - started_s
            )
            if witness is not None:
                witness.unfinished(node.node_id, f"did not answer a request for work: {error.message}")
            return Answered(answer)
        refused = not response.accepted_slots and counts_as_unfinished(response.refusal)
        if refused and witness is not None:
            witness.unfinished(node.node_id, f"refused work: {response.reason}")
        return Answered(
            NodeAnswer(
                node=node,
                accepted_slots=response.accepted_slots,
                reason=response.reason,
                answer_s=self._clock.monotonic_s() - started_s,
                slot_memory_bytes=response.slot_memory_bytes,
            ),
            response,
        )

    async def start_workers(
        self, job: Job, answered: list[Answered], wanted: int, witness: Witness, admit: Admit
    ) -> list[Worker]:
        """Starts a worker in each slot, `wanted` at most, in the order of the ranking; `admit` lets it in."""
        offers = [
            Offer(a.answer.node.node_id, a.answer.accepted_slots, a.response.accelerator_kind)
            for a in answered
        ]
        counts = take_slots(offers, wanted)
        started = await asyncio.gather(
            *(
                self._start_on(job, a, count, witness, admit)
                for a, count in zip(answered, counts, strict=True)
            )
        )
        return [worker for workers in started for worker in workers]

    async def _start_on(
        self, job: Job, answered: Answered, count: int, witness: Witness, admit: Admit
    ) -> list[Worker]:
        node = answered.answer.node
        if count == 0:
            # StopWorkers would end the job's other workers there; then the reservation ends by itself.
            is_used = any(w.node_id == node.node_id and not w.ended for w in job.workers)
            if answered.answer.accepted_slots and not is_used:
                await self.stop_on(job.job_id, node.address)
            return []
        ids = [new_worker_id() for _ in range(count)]
        request = StartWorkersRequest(
            reservation_id=answered.response.reservation_id,
            worker_ids=ids,
            worker_secrets=await admit(ids, node.node_id),
        )
        try:
            for digest in inputs_of(job.spec):
                await self._distributor.give(job.job_id, node, digest, witness)
            async with self.agent(node.address) as agent:
                await agent.call(agent.stub.StartWorkers, request, self._timeout_s * 2)
        except PeerloomError as error:
            witness.unfinished(node.node_id, f"took work and did not start it: {error.message}")
            return []
        return [Worker(worker_id=i, node_id=node.node_id, node_name=node.name) for i in ids]

    async def stop_workers(self, job_id: str, address: str, worker_ids: Sequence[str] = ()) -> None:
        """Ends these of a job's workers on a node, or all and frees its slots. Raises PeerloomError."""
        request = StopWorkersRequest(job_id=job_id, worker_ids=worker_ids, trainer_epoch=self._trainer_epoch)
        async with self.agent(address) as agent:
            await agent.call(agent.stub.StopWorkers, request, STOP_LIMIT_S)

    async def stop_on(self, job_id: str, address: str) -> None:
        """Ends a job's workers on a node and frees its slots; a node that is gone needs no stopping."""
        with suppress(PeerloomError):
            await self.stop_workers(job_id, address)
