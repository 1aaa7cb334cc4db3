"""One job's nodes: the first round of asking for slots, a watch over those that gave some, replacements."""

import asyncio
from collections.abc import Sequence, Set
from contextlib import nullcontext, suppress

from peerloom.errors import InvalidArgumentError, NotFoundError, PeerloomError
from peerloom.kit import tracing
from peerloom.kit.backoff import Backoff
from peerloom.kit.logs import get_logger
from peerloom.kit.quantity_texts import plural
from peerloom.kit.sync_auto import why_gloo
from peerloom.services.trainer.jobs.job_spans import job_traceparent
from peerloom.services.trainer.jobs.record import JobRecord
from peerloom.services.trainer.jobs.specs import slots_wanted
from peerloom.services.trainer.nodes.evidence_outbox import Witness
from peerloom.services.trainer.nodes.offers import choose_backend, verdict
from peerloom.services.trainer.nodes.recruiting import Answered, Recruiter
from peerloom.services.trainer.workers.decisions import how_it_ended
from peerloom.services.trainer.workers.pool import WorkerPool
from peerloom.services.trainer.workers.sessions import WorkerSessions
from peerloom.services.trainer.workers.state import Finished
from peerloom.v1.node_agent_pb2 import WatchWorkersResponse
from peerloom.v1.selector_pb2 import RankedNode, SelectNodesResponse
from peerloom.v1.trainer_pb2 import Backend, JobState, NodeChoice, Worker

FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.2, 1.0  # before a selector or an agent that was away is asked again
REINFORCE_MIN_S, REINFORCE_MAX_S = 0.5, 3.0  # between rounds of asking for more workers


class JobNodes:
    """Finds one job's workers, watches their nodes, and finds more when some are lost."""

    def __init__(
        self,
        record: JobRecord,
        pool: WorkerPool,
        sessions: WorkerSessions,
        recruiter: Recruiter,
        witness: Witness,
    ) -> None:
        self._record = record
        self._pool = pool
        self._sessions = sessions
        self._recruiter = recruiter
        self._witness = witness
        self._to_watch: asyncio.Queue[RankedNode] = asyncio.Queue()
        self._asked: Sequence[RankedNode] = ()  # those whose answers aren't in the record yet
        self._log = get_logger(job=record.job_id)

    async def recruit(self) -> str:
        """One round: selects, asks, starts workers. Returns "" or why no compute was reached.

        Waits while the selector is away. Raises NotFoundError for a policy that it doesn't know, and
        InvalidArgumentError for what it refuses to look for: neither changes by asking again.
        """
        wanted = slots_wanted(self._record.job.spec)
        self._record.round_begun("asking the selector for nodes")
        selection = await self._select()
        self._note_choice(selection)
        answered = await self._ask(selection, wanted, self._witness)
        self._note_answers(answered)
        job = self._record.job
        slots = sum(a.answer.accepted_slots for a in answered)
        is_enough, reason = verdict(slots, job.spec, len(answered))
        if not is_enough:
            return _why_not(reason, selection)
        kinds = [a.response.accelerator_kind for a in answered if a.answer.accepted_slots]
        backend, why = choose_backend(job.spec.backend, kinds, why_gloo(job.spec.sync, job.spec.robust))
        name = Backend.Name(backend).removeprefix("BACKEND_").lower()
        self._record.slots_found(backend, f"{reason}, with {name}: {why}")
        workers = await self._start(answered, wanted)
        if len(workers) < job.spec.min_workers:
            return f"{plural(len(workers), 'worker')} could be started, fewer than {job.spec.min_workers}"
        self._sessions.expect(workers)
        return ""

    async def free_slots(self) -> None:
        """Ends the job's workers wherever some may be, and frees what nodes hold for it or just promised."""
        nodes = [*self._record.nodes().values(), *self._asked]
        addresses = dict.fromkeys(node.address for node in nodes)
        stop = self._recruiter.stop_on
        await asyncio.gather(*(stop(self._record.job_id, address) for address in addresses))

    async def watch_forever(self) -> None:
        """Watches each node that gives slots, until cancelled."""
        for node in self._record.nodes().values():
            self._to_watch.put_nowait(node)
        watched: set[str] = set()
        async with asyncio.TaskGroup() as watches:
            while True:
                node = await self._to_watch.get()
                if node.node_id not in watched:
                    watched.add(node.node_id)
                    watches.create_task(self._watch_node(node))

    async def _watch_node(self, node: RankedNode) -> None:
        # The agent sees a process die within milliseconds; a session that broke proves little.
        backoff = Backoff(FIRST_PAUSE_S, LONGEST_PAUSE_S)
        while True:
            address = self._record.nodes().get(node.node_id, node).address
            known, told = self._workers_on(node.node_id), set[str]()
            try:
                async with self._recruiter.agent(address) as agent:
                    request = self._recruiter.watch_request(self._record.job_id)
                    async for event in agent.stream(agent.stub.WatchWorkers, request):
                        backoff.succeeded()
                        told.add(event.worker.worker_id)
                        if event.has_told_all:
                            self._went_with_agent(node.node_id, known - told, told)
                        else:
                            self._told(event)
            except PeerloomError as error:
                self._log.warning("agent_out_of_reach", node=node.name, reason=error.message)
                moved_to = await self._recruiter.address_of(node.node_id)
                if moved_to not in ("", address):
                    self._record.node_moved(node.node_id, moved_to)
            self._pool.agent_away(node.node_id)
            await asyncio.sleep(backoff.next_pause_s())

    def _told(self, event: WatchWorkersResponse) -> None:
        self._pool.agent_told(event.worker.worker_id)
        if event.ended:
            self._process_ended(event.worker.worker_id, how_it_ended(event.exit_code, event.reason))

    def _workers_on(self, node_id: str) -> set[str]:
        return {state.worker_id for state in self._pool.states() if state.node_id == node_id}

    def _went_with_agent(self, node_id: str, gone: Set[str], told: Set[str]) -> None:
        # Without a trainer nobody saw the agent go. It is for the registry to tell of, not against the node.
        if gone:
            self._pool.agent_away(node_id, but=told)
        for worker_id in sorted(gone):
            self._process_ended(worker_id, "it went with its node's agent, which was started anew")

    def _process_ended(self, worker_id: str, how: str) -> None:
        state = self._pool.state_of(worker_id)
        if state is not None and not isinstance(state.phase, Finished):
            self._pool.lose(worker_id, how)

    async def stop_forever(self) -> None:
        """Ends what is left of each worker that was given up, until cancelled: it may hang in its slot."""
        async with asyncio.TaskGroup() as stops:
            while True:
                stops.create_task(self._stop(await self._pool.given_up.get()))

    async def _stop(self, worker_id: str) -> None:
        node_id = self._record.worker(worker_id).node_id
        backoff = Backoff(FIRST_PAUSE_S, LONGEST_PAUSE_S)
        while True:
            address = self._record.nodes()[node_id].address
            try:
                return await self._recruiter.stop_workers(self._record.job_id, address, [worker_id])
            except PeerloomError:  # whoever watches the node tells why it can't be reached
                await asyncio.sleep(backoff.next_pause_s())

    async def reinforce_forever(self) -> None:
        """Finds replacements for lost workers, or more up to max_workers, as soon as some node has a slot."""
        spec = self._record.job.spec
        wanted = slots_wanted(spec) if spec.HasField("max_workers") else self._pool.count()
        pause_s, is_first = REINFORCE_MIN_S, True
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(pause_s):
                    await self._pool.someone_departs.wait()
            self._pool.someone_departs.clear()
            missing, job = wanted - self._pool.count(), self._record.job
            # Before the first generation the others are still starting, unless the job waits for nodes.
            if missing <= 0 or not (job.generation or job.state == JobState.JOB_STATE_WAITING):
                pause_s, is_first = REINFORCE_MIN_S, True
                self._pool.end_grace()
                continue
            found, longest_s = False, REINFORCE_MIN_S
            with suppress(PeerloomError):  # the selector or a node is away: the next round asks again
                found = await self._look_for_more(missing, is_first)
                longest_s = REINFORCE_MAX_S
            if not found:
                self._pool.end_grace()
            is_first = found
            pause_s = REINFORCE_MIN_S if found else min(2 * pause_s, longest_s)

    async def _look_for_more(self, missing: int, is_first: bool) -> bool:
        if not is_first:  # a job may look for days, in a trace that has room for what comes of it
            return await self._recruit_more(missing)
        with tracing.continuing(job_traceparent(self._record.job)), tracing.span("find more nodes"):
            return await self._recruit_more(missing)

    async def _recruit_more(self, missing: int) -> bool:
        selection = await self._recruiter.select(self._record.job)
        self._note_choice(selection)
        # A node that is asked again and again is not to blame for being busy each time: no evidence.
        answered = await self._ask(selection, missing, None)
        accepted = [a for a in answered if a.answer.accepted_slots]
        for a in accepted:
            self._to_watch.put_nowait(a.answer.node)
        self._note_answers(accepted)
        if not accepted:
            return False
        with tracing.continuing(job_traceparent(self._record.job)):  # workers belong to it in any case
            workers = await self._start(accepted, missing)
        self._sessions.expect(workers)
        return bool(workers)

    async def _select(self) -> SelectNodesResponse:
        backoff, told = Backoff(FIRST_PAUSE_S, LONGEST_PAUSE_S), ""
        while True:
            try:
                with tracing.muted() if told else nullcontext():  # it may be away for hours
                    return await self._recruiter.select(self._record.job)
            except (NotFoundError, InvalidArgumentError):
                raise
            except PeerloomError as error:
                if error.message != told:
                    told = error.message
                    self._record.state_changed(JobState.JOB_STATE_QUEUED, f"waiting for the selector: {told}")
                await asyncio.sleep(backoff.next_pause_s())

    async def _ask(
        self, selection: SelectNodesResponse, wanted: int, witness: Witness | None
    ) -> list[Answered]:
        self._asked = selection.nodes
        return await self._recruiter.ask_all(self._record.job, list(self._asked), wanted, witness)

    async def _start(self, answered: list[Answered], wanted: int) -> list[Worker]:
        job, admit = self._record.job, self._sessions.admit
        return await self._recruiter.start_workers(job, answered, wanted, self._witness, admit)

    def _note_choice(self, selection: SelectNodesResponse) -> None:
        choice = NodeChoice(
            policy=selection.policy,
            request_budget=self._record.job.spec.request_budget,
            chosen=len(selection.nodes),
            candidates=selection.candidates,
            exclusions=selection.exclusions,
        )
        if selection.HasField("outranked"):
            choice.outranked.CopyFrom(selection.outranked)
        self._record.nodes_chosen(choice)

    def _note_answers(self, answered: list[Answered]) -> None:
        for a in answered:
            self._record.answered(a.answer)
        self._asked = ()


def _why_not(reason: str, selection: SelectNodesResponse) -> str:
    if selection.nodes:
        return reason
    left_out = "; ".join(f"{e.count} left out: {e.reason}" for e in selection.exclusions)
    return f"the selector found no node to ask ({left_out or 'no node has registered'})"
