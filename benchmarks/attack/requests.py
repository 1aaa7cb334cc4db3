"""Requests made to break a service: huge, malformed, at the edge of what a field holds."""

import base64
from collections.abc import Awaitable, Callable
from typing import Any

from grpc import aio

from benchmarks.attack.attacks import attack
from benchmarks.attack.outcomes import OUT_OF_LIMITS, By, Gain, Held, Outcome, refused, worst
from benchmarks.attack.strangers import SERVICES
from benchmarks.attack.system import ATTACKER, REAL, System
from peerloom.kit.channel import open_channel
from peerloom.kit.dialing import Dialer
from peerloom.kit.ids import new_request_id
from peerloom.kit.status import error_from_rpc
from peerloom.v1.artifact_pb2 import ListArtifactsRequest
from peerloom.v1.registry_pb2 import ListNodesRequest, ListSessionsRequest
from peerloom.v1.selector_pb2 import ListBeliefsRequest
from peerloom.v1.trainer_pb2 import JobSpec, ListJobsRequest, ListModelsRequest, SubmitJobRequest

NO_CONTROL = "a plain service refuses it as well"
LONG = "x" * 70_000
TRAINED_S = 120.0
TOKENS = {
    "nested": "[" * 3000,
    "of another type": "{}",
    "a truth": "true",
    "too large": str(2**70),
    "not a number": "NaN",
}


async def _still_serves(system: System, outcome: Outcome) -> Outcome:
    """The outcome, unless a service doesn't answer any more."""
    for name, ask in SERVICES.items():
        try:
            await ask(system.operator(), system)
        except Exception as error:
            return Gain(f"the {name} doesn't serve any more: {error}")
    return outcome


@attack(By.USER, "submits jobs with fields of 70,000 characters and 10,000 entries", NO_CONTROL)
async def submit_huge_fields(system: System) -> Outcome:
    """Hopes to fill the trainer's memory or database, or to break it."""
    specs = [
        JobSpec(task=LONG),
        JobSpec(task="digits", name=LONG),
        JobSpec(task="digits", policy=LONG),
        JobSpec(task="digits", initial_model_digest=LONG),
        JobSpec(task="a:B", task_arguments={"a": LONG}),
        JobSpec(task="a:B", task_arguments={f"a{number}": "b" for number in range(10_000)}),
    ]
    user, found = await system.dialer("user"), list[Outcome]()
    async with user.trainer(system.addresses["trainer"]) as trainer:
        for spec in specs:
            request = SubmitJobRequest(spec=spec, request_id=new_request_id())
            call = trainer.call(trainer.stub.SubmitJob, request)
            found.append(await refused(call, OUT_OF_LIMITS, gain="a job that is too large"))
    return await _still_serves(system, worst(*found))


def _lists(user: Dialer, system: System) -> list[Callable[[str], Awaitable[Any]]]:
    """Lists of every service, each asked for the page behind a token."""

    async def of_registry(token: str) -> None:
        async with user.registry(system.registry) as peer:
            await peer.call(peer.stub.ListNodes, ListNodesRequest(page_token=token))

    async def of_sessions(token: str) -> None:
        async with user.registry(system.registry) as peer:
            await peer.call(peer.stub.ListSessions, ListSessionsRequest(page_token=token))

    async def of_beliefs(token: str) -> None:
        async with user.selector(system.addresses["selector"]) as peer:
            await peer.call(peer.stub.ListBeliefs, ListBeliefsRequest(page_token=token))

    async def of_jobs(token: str) -> None:
        async with user.trainer(system.addresses["trainer"]) as peer:
            await peer.call(peer.stub.ListJobs, ListJobsRequest(page_token=token))

    async def of_models(token: str) -> None:
        async with user.trainer(system.addresses["trainer"]) as peer:
            await peer.call(peer.stub.ListModels, ListModelsRequest(page_token=token))

    async def of_artifacts(token: str) -> None:
        async with user.artifacts(system.addresses["open"]) as peer:
            await peer.call(peer.stub.ListArtifacts, ListArtifactsRequest(page_token=token))

    return [of_registry, of_sessions, of_beliefs, of_jobs, of_models, of_artifacts]


@attack(By.USER, "asks six lists for pages behind tokens of its own making", NO_CONTROL)
async def forge_page_tokens(system: System) -> Outcome:
    """Hopes that what a token decodes to is used unseen."""
    user, found = await system.dialer("user"), list[Outcome]()
    tokens = [base64.urlsafe_b64encode(text.encode()).decode() for text in TOKENS.values()] + ["!", LONG]
    for ask in _lists(user, system):
        for token in tokens:
            found.append(await refused(ask(token), OUT_OF_LIMITS, gain=f"a page behind {token[:20]}"))
    return await _still_serves(system, worst(*found))


@attack(By.USER, "sends bytes that are no message", NO_CONTROL)
async def send_no_message(system: System) -> Outcome:
    """Hopes for an answer that is a bug, and a traceback in the log."""
    user, found = await system.dialer("user"), list[Outcome]()
    calls = {
        ("registry", "registry"): "RegistryService/ListNodes",
        ("selector", "selector"): "SelectorService/ListPolicies",
        ("trainer", "trainer"): "TrainerService/SubmitJob",
        ("open", "node"): "ArtifactService/ListArtifacts",
    }
    for (name, role), method in calls.items():
        raw = _send_raw(user, system.addresses[name], role, method)
        found.append(await refused(raw, OUT_OF_LIMITS, gain="rubbish is taken"))
    return await _still_serves(system, worst(*found))


async def _send_raw(user: Dialer, address: str, role: str, method: str) -> None:
    async with open_channel(address, user.identity, f"{role}.peerloom") as channel:
        try:
            call = channel.unary_unary(f"/peerloom.v1.{method}", bytes, bytes)
            await call(b"\xff\xff\xff", timeout=10.0)
        except aio.AioRpcError as error:
            raise error_from_rpc(error, address, role) from None


@attack(By.USER, "trains with the seed 2^64 - 1", "it trains there too")
async def train_with_the_last_seed(system: System) -> Outcome:
    """Hopes that a number which fits into the message fits nowhere behind it."""
    async with system.client(await system.admit("user", ATTACKER)) as client:
        job = await client.train("digits", epochs=1, seed=2**64 - 1, labels=REAL)
        result = await job.result(TRAINED_S)
    outcome: Outcome = Held("the job trains like any other") if result.succeeded else Gain(f"{result}")
    return await _still_serves(system, outcome)
