"""The trainer's calls, answered without a server."""

import asyncio
from collections.abc import Awaitable
from typing import Any, cast

import pytest
from trainer_room import Room, until
from trainer_site import SPEC, Site, finish

from peerloom.errors import FailedPreconditionError, InvalidArgumentError, NotFoundError
from peerloom.kit.paging import encode_token
from peerloom.services.trainer.nodes.job_logs import JobLogs
from peerloom.services.trainer.servicer import LINK_LIMIT, TrainerServicer
from peerloom.v1.trainer_pb2 import (
    CancelJobRequest,
    GetJobLogsRequest,
    GetJobRequest,
    JobSpec,
    JobState,
    LinkTraffic,
    ListJobsRequest,
    ListModelsRequest,
    NetworkTraffic,
    RecordJobTrafficRequest,
    ResumeJobRequest,
    SubmitJobRequest,
    WatchJobRequest,
)


def servicer_of(room: Room) -> TrainerServicer:
    logs, stopping = JobLogs(room.recruiter), asyncio.Event()
    return TrainerServicer(room.jobs, room.queue, room.store, room.sql, room.router, logs, stopping)


async def test_jobs_and_models_are_listed_in_pages_newest_first() -> None:
    async with Site().serving() as site:
        servicer = servicer_of(site.room)
        first = await servicer.SubmitJob(SubmitJobRequest(spec=SPEC, request_id="1"), None)
        finish(await site.working())
        await site.ended(first.job.job_id)
        second = await servicer.SubmitJob(SubmitJobRequest(spec=SPEC, request_id="2"), None)
        page = await servicer.ListJobs(ListJobsRequest(page_size=1), None)
        assert [job.job_id for job in page.jobs] == [second.job.job_id]
        rest = await servicer.ListJobs(ListJobsRequest(page_size=1, page_token=page.next_page_token), None)
        assert [job.job_id for job in rest.jobs] == [first.job.job_id]
        done = await servicer.ListJobs(ListJobsRequest(states=[JobState.JOB_STATE_SUCCEEDED]), None)
        assert [job.job_id for job in done.jobs] == [first.job.job_id]
        models = await servicer.ListModels(ListModelsRequest(), None)
        [model] = models.models
        assert (model.name, model.version, model.artifact.digest) == ("digits", 1, "f" * 64)


async def test_a_job_is_found_by_its_beginning_and_shown_with_the_verdict_on_its_samples() -> None:
    async with Site().serving() as site:
        servicer = servicer_of(site.room)
        job_id = await site.submit()
        finish(await site.working())
        await site.ended(job_id)
        job = (await servicer.GetJob(GetJobRequest(job_id=job_id[:8]), None)).job
        assert (job.job_id, job.ledger.is_exact) == (job_id, True)
        assert job.ledger.verdict == "exact: 1 epoch of 40 samples, each used once"
        events = [event async for event in servicer.WatchJob(WatchJobRequest(job_id=job_id), None)]
        assert [event.sequence for event in events] == list(range(1, len(events) + 1))
        for missing in ("", "job-x"):
            with pytest.raises(NotFoundError):
                await servicer.GetJob(GetJobRequest(job_id=missing), None)


async def test_a_job_is_cancelled_counted_and_resumed_by_its_beginning() -> None:
    async with Site().serving() as site:
        servicer = servicer_of(site.room)
        job_id = await site.submit()
        await until(lambda: site.job(job_id).workers)
        cancelled = await servicer.CancelJob(CancelJobRequest(job_id=job_id[:8]), None)
        assert cancelled.job.state == JobState.JOB_STATE_CANCELLED
        again = await servicer.CancelJob(CancelJobRequest(job_id=job_id), None)
        assert again.job == cancelled.job, "a job that has ended stays as it is"
        with pytest.raises(FailedPreconditionError, match="before its first checkpoint"):
            await servicer.ResumeJob(ResumeJobRequest(job_id=job_id), None)
        traffic = NetworkTraffic(backend="netem")
        await servicer.RecordJobTraffic(RecordJobTrafficRequest(job_id=job_id, traffic=traffic), None)
        assert site.job(job_id).traffic.backend == "netem"
        too_much = NetworkTraffic(links=[LinkTraffic()] * (LINK_LIMIT + 1))
        with pytest.raises(InvalidArgumentError, match="at most 1000 links"):
            await servicer.RecordJobTraffic(RecordJobTrafficRequest(job_id=job_id, traffic=too_much), None)


@pytest.mark.parametrize("job_id", ["j" * 65, "job-\0", "job-%", "JOB-1", "x" * 100_000])
async def test_what_can_not_be_an_id_is_refused_by_every_call(job_id: str) -> None:
    """A long one made the database say that it is away."""
    servicer = servicer_of(Room())
    calls = [
        servicer.GetJob(GetJobRequest(job_id=job_id), None),
        servicer.ResumeJob(ResumeJobRequest(job_id=job_id), None),
        servicer.CancelJob(CancelJobRequest(job_id=job_id), None),
        servicer.RecordJobTraffic(RecordJobTrafficRequest(job_id=job_id), None),
        anext(aiter(servicer.WatchJob(WatchJobRequest(job_id=job_id), None))),
        anext(aiter(servicer.GetJobLogs(GetJobLogsRequest(job_id=job_id), None))),
    ]
    for call in calls:
        with pytest.raises(InvalidArgumentError) as caught:
            await call
        assert caught.value.metadata["field"] == "job_id"
        assert len(caught.value.message) < 300


async def test_other_fields_that_no_database_takes_are_refused() -> None:
    servicer, token = servicer_of(Room()), encode_token("job-1")
    calls: dict[str, Awaitable[object]] = {
        "page_token": servicer.ListJobs(ListJobsRequest(page_token=token), None),
        "states": servicer.ListJobs(ListJobsRequest(states=[cast("Any", 99)]), None),
        "after_sequence": anext(
            aiter(servicer.WatchJob(WatchJobRequest(job_id="job-1", after_sequence=2**63), None))
        ),
        "request_id": servicer.SubmitJob(SubmitJobRequest(spec=SPEC, request_id="a\0"), None),
    }
    for field, call in calls.items():
        with pytest.raises(InvalidArgumentError) as caught:
            await call
        assert caught.value.metadata["field"] == field
    with pytest.raises(InvalidArgumentError, match="page_token"):
        await servicer.ListModels(ListModelsRequest(page_token=token), None)


async def test_a_request_without_its_id_is_refused() -> None:
    with pytest.raises(InvalidArgumentError, match="request_id"):
        await servicer_of(Room()).SubmitJob(SubmitJobRequest(spec=SPEC), None)


@pytest.mark.parametrize("sync", ["topology=hierarchy:ada+ade/bob", "topology=ps:ada+ade,codec=int8"])
async def test_a_node_that_never_registered_is_refused_before_anything_is_stored(sync: str) -> None:
    async with Site().serving() as site:
        site.room.neighbours.unknown = {"ade"}
        spec = JobSpec(task="digits", sync=sync)
        with pytest.raises(NotFoundError, match=r"There is no node 'ade'\. Did you mean ada\?"):
            await site.room.jobs.submit(spec, "1")
        assert site.room.store.list_jobs([], 10, None) == ([], False)


@pytest.mark.parametrize("servers", ["ada+bob", "bob+node-ada"])
async def test_servers_on_all_nodes_that_there_are_are_refused(servers: str) -> None:
    """By name or by id; a node that is away counts, as it may come back."""
    async with Site().serving() as site:
        spec = JobSpec(task="digits", sync=f"topology=ps:{servers}")
        site.room.neighbours.registered = ["ada", "bob"]
        with pytest.raises(InvalidArgumentError, match=r"all 2 that ever registered.*which is topology=ps"):
            await site.room.jobs.submit(spec, "1")
        site.room.neighbours.registered = ["ada", "bob", "cy"]
        assert (await site.room.jobs.submit(spec, "2")).spec.sync.endswith(f"ps:{servers},codec=none")


@pytest.mark.parametrize("sync", ["topology=ps:1", "topology=ps", "auto,quality=exact", "federated", ""])
async def test_who_names_no_node_is_not_asked_for_one(sync: str) -> None:
    async with Site().serving() as site:
        site.room.neighbours.registered, site.room.neighbours.unknown = ["ada"], {"1"}
        await site.room.jobs.submit(JobSpec(task="digits", sync=sync), "1")
