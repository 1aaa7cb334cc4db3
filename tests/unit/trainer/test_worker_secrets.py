"""A worker proves who it is: nobody else opens its session, and nobody learns its secret."""

from collections.abc import AsyncIterator

import pytest
from scripted_worker import ScriptedWorker
from trainer_room import settle, until
from trainer_site import SPEC, Site, finish

from peerloom.errors import InvalidArgumentError, PermissionDeniedError
from peerloom.kit.interceptors import Caller, caller
from peerloom.kit.limits import ENDED_STATES
from peerloom.kit.principal import Principal, Role
from peerloom.v1.trainer_pb2 import (
    JobState,
    WorkerFailed,
    WorkerHello,
    WorkerSessionRequest,
)


async def says(*messages: WorkerSessionRequest) -> AsyncIterator[WorkerSessionRequest]:
    for message in messages:
        yield message


async def refusal_of(site: Site, hello: WorkerHello) -> str:
    """Why the trainer doesn't listen to whoever says hello so, and then that the job can't go on."""
    failed = WorkerFailed(reason="so says a stranger", is_permanent=True)
    messages = says(WorkerSessionRequest(hello=hello), WorkerSessionRequest(failed=failed))
    with pytest.raises(PermissionDeniedError) as caught:
        async for _ in site.room.router.serve(messages):
            pass
    return caught.value.reason


async def test_nobody_speaks_for_a_worker_without_its_secret() -> None:
    """One message of a stranger's ended any job."""
    async with Site(slots=2).serving() as site:
        job_id = await site.submit()
        one, other = await site.worker(), await site.worker()
        for secret in ("", "0" * 64, other.secret, "ü"):
            hello = WorkerHello(worker_id=one.worker_id, job_id=job_id, secret=secret)
            assert await refusal_of(site, hello) == "NOT_THIS_WORKER"
        unknown = WorkerHello(worker_id="worker-9", job_id=job_id, secret="")
        assert await refusal_of(site, unknown) == "NOT_THIS_WORKER"
        await settle()
        assert site.job(job_id).state not in ENDED_STATES
        assert [worker.ended for worker in site.job(job_id).workers] == [False, False]
        assert all(site.room.router.is_connected(worker.worker_id) for worker in (one, other))


async def test_a_certificate_speaks_for_a_worker_of_its_own_node_only() -> None:
    """Another node of the same owner has the secret too, and a certificate for a worker of that name."""
    async with Site(owner="grace").serving() as site:
        job_id = await site.submit()
        worker = await site.worker()
        hello = WorkerHello(worker_id=worker.worker_id, job_id=job_id, secret=worker.secret)
        for node in ("node-eve", ""):
            shown = Principal(Role.WORKER, worker.worker_id, "grace", node, job_id)
            token = caller.set(Caller(shown, ""))
            try:
                assert await refusal_of(site, hello) == "NOT_THIS_WORKER"
            finally:
                caller.reset(token)
        await settle()
        assert site.room.router.is_connected(worker.worker_id)
        assert site.job(job_id).state not in ENDED_STATES


async def test_a_worker_that_comes_again_takes_its_own_place_and_the_older_stream_counts_no_more() -> None:
    async with Site().serving() as site:
        job_id = await site.submit()
        worker = await site.working()
        again = ScriptedWorker(site.room.router, worker.worker_id, job_id, worker.secret)
        again.connect(step=2, generation=1)
        await again.hear("recorded")
        worker.say(WorkerSessionRequest(failed=WorkerFailed(reason="late", is_permanent=True)))
        await settle()
        assert site.room.router.is_connected(worker.worker_id)
        finish(again)
        job = await site.ended(job_id)
        assert job.state == JobState.JOB_STATE_SUCCEEDED, job.state_reason


async def test_a_secret_is_in_no_record_event_or_log_and_goes_with_its_job(
    capsys: pytest.CaptureFixture[str],
) -> None:
    async with Site().serving() as site:
        job_id = await site.submit()
        worker = await site.working()
        store = site.room.store
        assert store.worker_secrets(job_id) == {worker.worker_id: worker.secret}
        assert len(worker.secret) == 64
        finish(worker)
        await site.ended(job_id)
        await until(lambda: not store.worker_secrets(job_id))
        shown = site.job(job_id).SerializeToString() + b"".join(
            event.SerializeToString() for event in store.read_events(job_id, 0, 1000)
        )
        printed = capsys.readouterr()
        assert worker.secret.encode() not in shown
        assert worker.secret not in printed.out + printed.err


@pytest.mark.parametrize(
    ("hello", "field"),
    [
        (WorkerHello(worker_id="w" * 64, job_id="job-1"), "hello.worker_id"),
        (WorkerHello(worker_id="worker-1", job_id="x" * 100_000), "hello.job_id"),
    ],
)
async def test_a_hello_that_can_be_nobody_s_is_refused(hello: WorkerHello, field: str) -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        async for _ in Site().room.router.serve(says(WorkerSessionRequest(hello=hello))):
            pass
    assert caught.value.metadata["field"] == field


async def test_workers_have_secrets_of_their_own() -> None:
    async with Site(slots=3).serving() as site:
        await site.room.jobs.submit(SPEC, "request-1")
        await until(lambda: len(site.agent.secrets) == 3)
        assert len(set(site.agent.secrets.values())) == 3
