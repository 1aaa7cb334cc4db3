"""What a node may come to by asking for work itself: at other agents, at the trainer, in others' jobs."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing

from benchmarks.attack.attacks import attack
from benchmarks.attack.nodes import NO_CERTIFICATES
from benchmarks.attack.outcomes import (
    ROLE_MAY_NOT,
    By,
    Outcome,
    ProvesNothingError,
    Refusal,
    refused,
    worst,
)
from benchmarks.attack.system import System
from benchmarks.attack.targets import Running, job_of_another, stolen_secret
from peerloom.kit.dialing import Dialer
from peerloom.kit.ids import new_request_id, new_secret
from peerloom.v1.artifact_pb2 import Artifact
from peerloom.v1.node_agent_pb2 import (
    GetWorkerLogsRequest,
    RequestWorkRequest,
    RequestWorkResponse,
    StartWorkersRequest,
    StopWorkersRequest,
    Work,
)
from peerloom.v1.trainer_pb2 import (
    CancelJobRequest,
    JobSpec,
    SubmitJobRequest,
    WorkerFinished,
    WorkerHello,
    WorkerSessionRequest,
)

ANSWER_S = 20.0
# Who is refused by its role is refused before; to write then is an internal error in gRPC's own client.
ROLE_S = 1.0
NOT_THIS_WORKER = Refusal("PERMISSION_DENIED", "NOT_THIS_WORKER")


async def _work_at(dialer: Dialer, system: System, name: str) -> RequestWorkResponse:
    """Raises unless a slot is given: with code of its own where the owner lets that in."""
    address, code = system.addresses[name], "0" * 64 if name == "open" else ""
    work = Work(trainer_address=system.addresses["trainer"], task="digits", code_digest=code)
    request = RequestWorkRequest(job_id="job-of-eve", max_slots=1, request_id=new_request_id(), work=work)
    async with dialer.node_agent(address) as agent:
        answer: RequestWorkResponse = await agent.call(agent.stub.RequestWork, request)
    if not answer.accepted_slots:
        raise ProvesNothingError(f"it was asked as by a trainer, and refused: {answer.reason}")
    return answer


async def _start_at(dialer: Dialer, address: str) -> None:
    request = StartWorkersRequest(
        reservation_id="reservation-1", worker_ids=["worker-1"], worker_secrets=[new_secret()]
    )
    async with dialer.node_agent(address) as agent:
        await agent.call(agent.stub.StartWorkers, request)


@attack(By.NODE, "asks other agents for work, with code of its own, and starts workers")
async def work_at_another_agent(system: System) -> Outcome:
    """Hopes that its code runs where the owner forbids it, by asking the agent as a trainer would."""
    evil, found = await system.dialer("node"), list[Outcome]()
    for name in ("lending", "open") if system.is_closed else ("open",):
        asked = _work_at(evil, system, name)
        found.append(await refused(asked, ROLE_MAY_NOT, gain="a slot for work of its own"))
        if system.is_closed:
            starting = _start_at(evil, system.addresses[name])
            found.append(await refused(starting, ROLE_MAY_NOT, gain="a worker"))
    return worst(*found)


@attack(By.NODE, "reads the logs of another's job at its agent")
async def read_anothers_logs(system: System) -> Outcome:
    """Hopes that what workers print is for every member."""
    job, evil = await job_of_another(system), await system.dialer("node")
    async with evil.node_agent(system.addresses["open"]) as agent:

        async def read() -> None:
            async for _ in agent.stream(agent.stub.GetWorkerLogs, GetWorkerLogsRequest(job_id=job.job_id)):
                pass

        return await refused(read(), ROLE_MAY_NOT, gain="what another's workers printed")


async def _say(dialer: Dialer, system: System, job: Running, secret: str) -> None:
    """Says hello and, once that is taken, that a model of its own is the job's. Raises unless it is taken."""
    is_in = asyncio.get_running_loop().create_future()

    async def say() -> AsyncIterator[WorkerSessionRequest]:
        hello = WorkerHello(worker_id=job.worker_id, job_id=job.job_id, secret=secret, is_tls=True)
        await asyncio.sleep(ROLE_S)
        yield WorkerSessionRequest(hello=hello)
        if not await is_in:
            return
        foreign = WorkerFinished(generation=1, model=Artifact(digest="0" * 64, size_bytes=1))
        yield WorkerSessionRequest(finished=foreign)

    async with dialer.trainer(system.addresses["trainer"]) as trainer:
        answers = trainer.converse(trainer.stub.WorkerSession, say())
        async with asyncio.timeout(ANSWER_S), aclosing(answers):
            try:
                async for _ in answers:  # the last one tells it to end: that model can't be
                    if not is_in.done():
                        is_in.set_result(True)
            finally:
                if not is_in.done():
                    is_in.set_result(False)
                    await asyncio.sleep(0)  # what is said ends with the stream


@attack(By.NODE, "opens the session of another job's worker; in the control, with its stolen secret")
async def hijack_a_job(system: System) -> Outcome:
    """Hopes to end another's job with a model of its own: it knows the worker's id and the job's."""
    job, evil = await job_of_another(system), await system.dialer("node")
    gain = "it speaks for another's worker"
    if not system.is_closed:
        secret = await stolen_secret(system, job.worker_id)
        return await refused(_say(evil, system, job, secret), gain=gain)
    found = [await refused(_say(evil, system, job, new_secret()), ROLE_MAY_NOT, gain=gain)]
    same = await system.worker(evil, job.worker_id, job.job_id)
    found.append(await refused(_say(same, system, job, new_secret()), NOT_THIS_WORKER, gain=gain))
    found.append(await refused(_say(same, system, job, ""), NOT_THIS_WORKER, gain=gain))
    return worst(*found)


@attack(By.NODE, "opens it by a certificate for another job, with the true secret", NO_CERTIFICATES)
async def hijack_with_a_stolen_secret(system: System) -> Outcome:
    """Hopes that the secret, which went through an agent, is enough."""
    job, evil = await job_of_another(system), await system.dialer("node")
    worker = await system.worker(evil, "worker-of-eve", "job-of-eve")
    secret = await stolen_secret(system, job.worker_id)
    return await refused(
        _say(worker, system, job, secret), NOT_THIS_WORKER, gain="it speaks for another's worker"
    )


@attack(By.NODE, "submits a job, and cancels and stops another's")
async def act_as_a_user(system: System) -> Outcome:
    """Hopes that whoever is in may do what people do."""
    job, evil = await job_of_another(system), await system.dialer("node")
    # In a plain system nothing is submitted: it would run.
    spec = JobSpec(task="digits", epochs=1)
    submitting = SubmitJobRequest(spec=spec, request_id=new_request_id())
    found = list[Outcome]()
    async with evil.trainer(system.addresses["trainer"]) as trainer:
        if system.is_closed:
            call = trainer.call(trainer.stub.SubmitJob, submitting)
            found.append(await refused(call, ROLE_MAY_NOT, gain="a job of its own"))
        cancelling = trainer.call(trainer.stub.CancelJob, CancelJobRequest(job_id=job.job_id), 60.0)
        found.append(await refused(cancelling, ROLE_MAY_NOT, gain="another's job is cancelled"))
    if system.is_closed:
        async with evil.node_agent(system.addresses["open"]) as agent:
            stopping = agent.call(agent.stub.StopWorkers, StopWorkersRequest(job_id=job.job_id))
            found.append(await refused(stopping, ROLE_MAY_NOT, gain="another's workers are stopped"))
    return worst(*found)
