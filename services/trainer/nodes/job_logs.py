"""What a job's workers printed, from all its nodes in one stream."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress

from peerloom.errors import NotFoundError, PeerloomError
from peerloom.kit.backoff import Backoff
from peerloom.kit.limits import ENDED_STATES
from peerloom.services.trainer.nodes.recruiting import Recruiter
from peerloom.v1.node_agent_pb2 import GetWorkerLogsRequest
from peerloom.v1.selector_pb2 import RankedNode
from peerloom.v1.trainer_pb2 import GetJobLogsResponse, Job

QUEUE_LIMIT = 1000  # lines that wait for a slow reader; the nodes' streams stand still meanwhile
# While the job lives, for nodes that joined it, and for workers that began where others had ended.
LOOK_AGAIN_S, LONGEST_PAUSE_S = 0.5, 10.0
FindJob = Callable[[], Awaitable[Job]]
_Queue = asyncio.Queue[GetJobLogsResponse | None]


class JobLogs:
    """Reads workers' output from their agents."""

    def __init__(self, recruiter: Recruiter) -> None:
        self._recruiter = recruiter

    async def read(self, find: FindJob, follow: bool, tail_lines: int) -> AsyncIterator[GetJobLogsResponse]:
        """All lines, in order for each worker; a node that can't be reached says so in one line.

        `find` gives the job as it is. With `follow` what is printed until the job's end comes too, also on
        nodes that join it later.
        """
        queue: _Queue = asyncio.Queue(QUEUE_LIMIT)
        reading = asyncio.create_task(self._read_all(find, follow, tail_lines, queue))
        try:
            while (line := await queue.get()) is not None:
                yield line
            await reading
        finally:
            reading.cancel()
            await asyncio.gather(reading, return_exceptions=True)

    async def _read_all(self, find: FindJob, follow: bool, tail_lines: int, queue: _Queue) -> None:
        known: set[str] = set()
        ended = asyncio.Event()
        try:
            async with asyncio.TaskGroup() as tasks:
                while True:
                    job = await find()
                    # A node that gives a slot again has answered twice.
                    nodes = {a.node.node_id: a.node for a in job.answers if a.accepted_slots}
                    for node in (node for node_id, node in nodes.items() if node_id not in known):
                        reader = _NodeReader(self._recruiter, node, job.job_id, tail_lines, queue)
                        tasks.create_task(reader.read(ended))
                        known.add(node.node_id)
                    if not follow or job.state in ENDED_STATES:
                        ended.set()
                        break
                    await asyncio.sleep(LOOK_AGAIN_S)
        except asyncio.CancelledError:
            raise  # nobody reads any more
        except BaseException:
            await queue.put(None)
            raise
        await queue.put(None)


class _NodeReader:
    """Reads what a job's workers printed on one node: again and again while the job lives, each line once."""

    def __init__(
        self, recruiter: Recruiter, node: RankedNode, job_id: str, tail_lines: int, queue: _Queue
    ) -> None:
        self._recruiter, self._node, self._job_id, self._queue = recruiter, node, job_id, queue
        self._tail_lines = tail_lines
        self._read: Counter[str] = Counter()  # lines of each worker
        self._ended: set[str] = set()  # workers of which all was read
        self._told = ""

    async def read(self, ended: asyncio.Event) -> None:
        """All that there is, and what comes until the job has `ended`."""
        backoff = Backoff(LOOK_AGAIN_S, LONGEST_PAUSE_S)
        is_last = False
        while not is_last:
            is_last, seen = ended.is_set(), self._read.total()  # what was printed until now is read below
            try:
                await self._read_once(not is_last)
            except NotFoundError as error:  # its workers aren't started yet
                await self._tell(error if is_last else None)
            except PeerloomError as error:
                await self._tell(error)
            if self._read.total() > seen:
                backoff.succeeded()
            if not is_last:
                with suppress(TimeoutError):
                    async with asyncio.timeout(backoff.next_pause_s()):
                        await ended.wait()

    async def _read_once(self, follow: bool) -> None:
        passed: Counter[str] = Counter()
        # Tails are of workers that are new here; of those that are known, all that is new is wanted.
        tail_lines = 0 if self._read else self._tail_lines
        request = GetWorkerLogsRequest(job_id=self._job_id, follow=follow, tail_lines=tail_lines)
        async with self._recruiter.agent(self._node.address) as agent:
            async for line in agent.stream(agent.stub.GetWorkerLogs, request):
                passed[line.worker_id] += 1
                if line.worker_id not in self._ended and passed[line.worker_id] > self._read[line.worker_id]:
                    self._read[line.worker_id] += 1
                    await self._put(line.worker_id, line.line)
        # The stream ends when none of the job's workers runs there: these print no more.
        self._ended.update(self._read)

    async def _tell(self, error: PeerloomError | None) -> None:
        if error is not None and error.message != self._told:
            self._told = error.message
            await self._put("", f"(no output: {error.message})")

    async def _put(self, worker_id: str, line: str) -> None:
        await self._queue.put(GetJobLogsResponse(node_name=self._node.name, worker_id=worker_id, line=line))
