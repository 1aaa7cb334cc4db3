"""What a job's workers printed, from all its nodes in one stream."""

import asyncio
from collections.abc import AsyncIterator

from peerloom.errors import PeerloomError
from peerloom.services.trainer.nodes.recruiting import Recruiter
from peerloom.v1.node_agent_pb2 import GetWorkerLogsRequest
from peerloom.v1.selector_pb2 import RankedNode
from peerloom.v1.trainer_pb2 import GetJobLogsResponse, Job

QUEUE_LIMIT = 1000  # lines that wait for a slow reader; the nodes' streams stand still meanwhile


class JobLogs:
    """Reads workers' output from their agents."""

    def __init__(self, recruiter: Recruiter) -> None:
        self._recruiter = recruiter

    async def read(self, job: Job, follow: bool, tail_lines: int) -> AsyncIterator[GetJobLogsResponse]:
        """All lines, in order for each worker; a node that can't be reached says so in one line."""
        nodes = [a.node for a in job.answers if a.accepted_slots]
        queue: asyncio.Queue[GetJobLogsResponse | None] = asyncio.Queue(QUEUE_LIMIT)
        request = GetWorkerLogsRequest(job_id=job.job_id, follow=follow, tail_lines=tail_lines)
        tasks = [asyncio.create_task(self._read_node(node, request, queue)) for node in nodes]
        try:
            left = len(tasks)
            while left:
                line = await queue.get()
                if line is None:
                    left -= 1
                else:
                    yield line
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _read_node(
        self,
        node: RankedNode,
        request: GetWorkerLogsRequest,
        queue: "asyncio.Queue[GetJobLogsResponse | None]",
    ) -> None:
        try:
            async with self._recruiter.agent(node.address) as agent:
                async for line in agent.stream(agent.stub.GetWorkerLogs, request):
                    await queue.put(
                        GetJobLogsResponse(node_name=node.name, worker_id=line.worker_id, line=line.line)
                    )
        except PeerloomError as error:
            await queue.put(GetJobLogsResponse(node_name=node.name, line=f"(no output: {error.message})"))
        await queue.put(None)
