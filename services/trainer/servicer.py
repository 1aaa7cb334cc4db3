"""Translates between the trainer's messages and its jobs; decides nothing."""

import asyncio
from collections.abc import AsyncIterator
from functools import partial
from typing import Any

from peerloom.errors import InvalidArgumentError, NotFoundError
from peerloom.kit.checks import (
    check_choice,
    check_id_beginning,
    check_range,
    check_request_id,
    check_text,
)
from peerloom.kit.database import SqlThread
from peerloom.kit.interceptors import caller
from peerloom.kit.paging import encode_token, number_key, page_size_of
from peerloom.kit.parallel_plan import MAX_PLAN_CHARACTERS
from peerloom.kit.roles import check_owns
from peerloom.services.trainer.jobs.commit_queue import CommitQueue
from peerloom.services.trainer.jobs.sample_ledger import show_verdict
from peerloom.services.trainer.jobs.supervisor import JobSupervisor
from peerloom.services.trainer.nodes.job_logs import JobLogs
from peerloom.services.trainer.store import TrainerStore
from peerloom.services.trainer.workers.session_router import SessionRouter
from peerloom.v1.trainer_pb2 import (
    CancelJobRequest,
    CancelJobResponse,
    GetJobLogsRequest,
    GetJobLogsResponse,
    GetJobRequest,
    GetJobResponse,
    Job,
    JobState,
    ListJobsRequest,
    ListJobsResponse,
    ListModelsRequest,
    ListModelsResponse,
    Model,
    RecordJobTrafficRequest,
    RecordJobTrafficResponse,
    ResumeJobRequest,
    ResumeJobResponse,
    SubmitJobRequest,
    SubmitJobResponse,
    WatchJobRequest,
    WatchJobResponse,
    WorkerSessionRequest,
    WorkerSessionResponse,
)
from peerloom.v1.trainer_pb2_grpc import TrainerServiceServicer

LINK_LIMIT = 1000
TRAFFIC_LIMIT_BYTES = 256 * 1024
MAX_SEQUENCE = 2**63 - 1  # what the database has room for


class TrainerServicer(TrainerServiceServicer):
    """TrainerService over the jobs that live here."""

    def __init__(
        self,
        jobs: JobSupervisor,
        queue: CommitQueue,
        store: TrainerStore,
        sql: SqlThread,
        router: SessionRouter,
        logs: JobLogs,
        stopping: asyncio.Event,
    ) -> None:
        self._jobs = jobs
        self._queue = queue
        self._store = store
        self._sql = sql
        self._router = router
        self._logs = logs
        self._stopping = stopping

    async def SubmitJob(self, request: SubmitJobRequest, context: Any) -> SubmitJobResponse:
        check_request_id("request_id", request.request_id)
        return SubmitJobResponse(
            job=await self._jobs.submit(request.spec, request.request_id, caller.get().owner)
        )

    async def GetJob(self, request: GetJobRequest, context: Any) -> GetJobResponse:
        job = await self._find(request.job_id)
        return GetJobResponse(job=show_verdict(job))

    async def ListJobs(self, request: ListJobsRequest, context: Any) -> ListJobsResponse:
        size, before = page_size_of(request.page_size), number_key(request.page_token)
        for state in request.states:
            check_choice("states", state, JobState.values(), "one of JobState")
        states = sorted(set(request.states))
        page, has_more = await self._sql.run(self._store.list_jobs, states, size, before)
        return ListJobsResponse(
            jobs=[job for _, job in page],
            next_page_token=encode_token(page[-1][0]) if has_more else "",
        )

    async def ResumeJob(self, request: ResumeJobRequest, context: Any) -> ResumeJobResponse:
        job = await self._find_own(request.job_id)
        check_text("plan", request.plan, high=MAX_PLAN_CHARACTERS)
        return ResumeJobResponse(job=await self._jobs.resume(job.job_id, request.plan))

    async def CancelJob(self, request: CancelJobRequest, context: Any) -> CancelJobResponse:
        job = await self._find_own(request.job_id)
        await self._jobs.cancel(job.job_id)
        return CancelJobResponse(job=await self._find(job.job_id))

    async def RecordJobTraffic(
        self, request: RecordJobTrafficRequest, context: Any
    ) -> RecordJobTrafficResponse:
        check_range("traffic (bytes)", request.traffic.ByteSize(), 0, TRAFFIC_LIMIT_BYTES)
        if len(request.traffic.links) > LINK_LIMIT:
            limit = f"at most {LINK_LIMIT} links"
            raise InvalidArgumentError.of_field("traffic.links", len(request.traffic.links), limit)
        job = await self._find_own(request.job_id)
        await self._jobs.record_traffic(job.job_id, request.traffic)
        return RecordJobTrafficResponse()

    async def WatchJob(self, request: WatchJobRequest, context: Any) -> AsyncIterator[WatchJobResponse]:
        check_range("after_sequence", request.after_sequence, 0, MAX_SEQUENCE)
        job = await self._find(request.job_id)
        async for event in self._queue.watch(job.job_id, request.after_sequence, self._stopping):
            yield event

    async def GetJobLogs(self, request: GetJobLogsRequest, context: Any) -> AsyncIterator[GetJobLogsResponse]:
        job_id = (await self._find(request.job_id)).job_id
        find = partial(self._find, job_id)
        async for line in self._logs.read(find, request.follow, request.tail_lines):
            yield line

    async def ListModels(self, request: ListModelsRequest, context: Any) -> ListModelsResponse:
        size, before = page_size_of(request.page_size), number_key(request.page_token)
        page, has_more = await self._sql.run(self._store.list_models, size, before)
        return ListModelsResponse(
            models=[_model(job, name, version) for _, job, name, version in page],
            next_page_token=encode_token(page[-1][0]) if has_more else "",
        )

    async def WorkerSession(
        self, request_iterator: AsyncIterator[WorkerSessionRequest], context: Any
    ) -> AsyncIterator[WorkerSessionResponse]:
        async for response in self._router.serve(request_iterator):
            yield response

    async def _find_own(self, job_id: str) -> Job:
        job = await self._find(job_id)
        check_owns(caller.get().principal, job.owner, job.job_id)
        return job

    async def _find(self, job_id: str) -> Job:
        if not job_id:
            raise NotFoundError("A job's id, or the beginning of one, is needed.", reason="JOB_NOT_FOUND")
        check_id_beginning("job_id", job_id)
        job, _ = await self._sql.run(self._store.find_job, job_id)
        return job


def _model(job: Job, name: str, version: int) -> Model:
    return Model(
        artifact=job.result.model,
        job_id=job.job_id,
        task=job.spec.task,
        metric_name=job.progress.metric_name,
        metric=job.progress.metric,
        create_time=job.end_time,
        name=name,
        version=version,
        initial_model_digest=job.spec.initial_model_digest,
        raw_input=job.result.raw_input if job.result.HasField("raw_input") else None,
    )
