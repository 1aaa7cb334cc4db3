"""A job's staff: the first round of asking for slots, and replacements as long as the job lives."""

import asyncio
from collections.abc import Callable
from contextlib import suppress

from peerloom.errors import NotFoundError, PeerloomError
from peerloom.kit.logs import get_logger
from peerloom.services.trainer.crew import Crew
from peerloom.services.trainer.evidence import Witness
from peerloom.services.trainer.journal import JobJournal
from peerloom.services.trainer.recruiting import Answered, Recruiter
from peerloom.services.trainer.rules import choose_backend, slots_wanted, verdict
from peerloom.v1.selector_pb2 import RankedNode, SelectNodesResponse
from peerloom.v1.trainer_pb2 import Job, JobState, WatchJobResponse

RETRY_S = 1.0
REINFORCE_MIN_S, REINFORCE_MAX_S = 0.5, 3.0  # between rounds of asking for more workers
SetState = Callable[["JobState.ValueType", str], None]


class Staff:
    """Finds one job's workers, watches their nodes, and finds more when some are lost."""

    def __init__(
        self,
        journal: JobJournal,
        crew: Crew,
        recruiter: Recruiter,
        witness: Witness,
        address: Callable[[], str],
    ) -> None:
        self._journal = journal
        self._crew = crew
        self._recruiter = recruiter
        self._witness = witness
        self._address = address
        self._log = get_logger(job=journal.job.job_id)
        self._tasks: dict[str, asyncio.Task[None]] = {}

    @property
    def _job(self) -> Job:
        return self._journal.job

    async def recruit(self, set_state: SetState) -> str:
        """One round: selects, asks, starts workers. Returns "" or why no compute was reached.

        Waits while the selector is away. Raises NotFoundError for a policy that it doesn't know.
        """
        job, wanted = self._job, slots_wanted(self._job.spec)
        del job.answers[:], job.workers[:]
        set_state(JobState.JOB_STATE_SELECTING, "asking the selector for nodes")
        selection = await self._select(set_state)
        answered = await self._recruiter.ask_all(job, list(selection.nodes), wanted, self._witness)
        self._note_answers(answered)
        slots = sum(a.answer.accepted_slots for a in answered)
        is_enough, reason = verdict(slots, job.spec, len(answered))
        if not is_enough:
            return _why_not(reason, selection)
        self._choose_backend(answered)
        set_state(JobState.JOB_STATE_STARTING, reason)
        workers = await self._recruiter.start_workers(job, answered, wanted, self._address(), self._witness)
        if len(workers) < job.spec.min_workers:
            return f"{len(workers)} workers could be started, fewer than {job.spec.min_workers}"
        self._crew.add(workers)
        return ""

    def begin(self) -> None:
        """From now on watches the nodes that gave slots, and looks for replacements."""
        for answer in self._job.answers:
            if answer.accepted_slots:
                self._watch(answer.node)
        self._tasks[""] = asyncio.create_task(self._reinforce())

    async def end(self) -> None:
        """Stops watching and looking."""
        for task in self._tasks.values():
            task.cancel()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)

    async def _select(self, set_state: SetState) -> SelectNodesResponse:
        told = ""
        while True:
            try:
                return await self._recruiter.select(self._job)
            except NotFoundError:
                raise
            except PeerloomError as error:
                if error.message != told:
                    told = error.message
                    set_state(JobState.JOB_STATE_QUEUED, f"waiting for the selector: {told}")
                await asyncio.sleep(RETRY_S)

    def _choose_backend(self, answered: list[Answered]) -> None:
        kinds = [a.response.accelerator_kind for a in answered if a.answer.accepted_slots]
        self._job.backend, why = choose_backend(self._job.spec.backend, kinds)
        self._log.info("backend_chosen", backend=self._job.backend, reason=why)

    def _note_answers(self, answered: list[Answered]) -> None:
        for a in answered:
            self._job.answers.append(a.answer)
            self._journal.note(WatchJobResponse(answer=a.answer))

    def _watch(self, node: RankedNode) -> None:
        if node.node_id not in self._tasks:
            self._tasks[node.node_id] = asyncio.create_task(self._watch_node(node))

    async def _watch_node(self, node: RankedNode) -> None:
        # The agent sees a process die within milliseconds; a line that broke proves little.
        while True:
            async with self._recruiter.agent(node.address) as agent:
                try:
                    await self._crew.follow(agent, node.node_id)
                except PeerloomError as error:
                    self._log.warning("agent_out_of_reach", node=node.name, reason=error.message)
            self._crew.lose_sight(node.node_id)
            await asyncio.sleep(RETRY_S)

    async def _reinforce(self) -> None:
        # Replacements for lost workers, or more up to max_workers, as soon as some node has a slot.
        pause_s, spec = REINFORCE_MIN_S, self._job.spec
        wanted = slots_wanted(spec) if spec.HasField("max_workers") else self._crew.count()
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(pause_s):
                    await self._crew.someone_departs.wait()
            self._crew.someone_departs.clear()
            missing = wanted - self._crew.count()
            if missing <= 0 or not self._job.generation:
                pause_s = REINFORCE_MIN_S
                self._crew.end_grace()
                continue
            found = False
            with suppress(PeerloomError):  # the selector or a node is away: the next round asks again
                found = await self._recruit_more(missing)
            if not found:
                self._crew.end_grace()
            pause_s = REINFORCE_MIN_S if found else min(2 * pause_s, REINFORCE_MAX_S)

    async def _recruit_more(self, missing: int) -> bool:
        job = self._job
        selection = await self._recruiter.select(job)
        # A node that is asked again and again is not to blame for being busy each time: no evidence.
        answered = await self._recruiter.ask_all(job, list(selection.nodes), missing, None)
        accepted = [a for a in answered if a.answer.accepted_slots]
        for a in accepted:
            self._watch(a.answer.node)
        self._note_answers(accepted)
        workers = await self._recruiter.start_workers(job, accepted, missing, self._address(), self._witness)
        self._crew.add(workers)
        return bool(workers)


def _why_not(reason: str, selection: SelectNodesResponse) -> str:
    if selection.nodes:
        return reason
    left_out = "; ".join(f"{e.count} left out: {e.reason}" for e in selection.exclusions)
    return f"the selector found no node to ask ({left_out or 'no node has registered'})"
