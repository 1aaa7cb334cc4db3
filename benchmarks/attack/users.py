"""What a user with a certificate may come to with what belongs to others."""

import json
from datetime import timedelta
from pathlib import Path

import numpy
from safetensors.numpy import save_file

from benchmarks.attack.attacks import attack
from benchmarks.attack.outcomes import (
    FOREIGN_OWNER,
    ROLE_MAY_NOT,
    By,
    Outcome,
    Refusal,
    refused,
    worst,
)
from benchmarks.attack.strangers import NO_DOOR
from benchmarks.attack.system import ATTACKER, System
from benchmarks.attack.targets import job_of_another
from peerloom.client.types.admission import TokenRole
from peerloom.kit.safetensors_file import METADATA_KEY
from peerloom.v1.inference_pb2 import LoadModelRequest
from peerloom.v1.node_agent_pb2 import StartInferenceRequest
from peerloom.v1.trainer_pb2 import NetworkTraffic, RecordJobTrafficRequest

INFERENCE_S = 60.0
NAMED = ("os:system", "paced:Paced", "etc.shadow:Line")


@attack(By.USER, "cancels another owner's job")
async def cancel_anothers_job(system: System) -> Outcome:
    """Hopes to get the slots that somebody else has."""
    job = await job_of_another(system)
    async with system.client(await system.admit("user", ATTACKER)) as client:
        handle = await client.job(job.job_id)
        return await refused(handle.cancel(), FOREIGN_OWNER, gain="another's job is cancelled")


@attack(By.USER, "writes into the record of another owner's job", "while it runs nobody may write there")
async def record_for_another(system: System) -> Outcome:
    """Hopes to fill another's record with lies about its network."""
    job, user = await job_of_another(system), await system.dialer("user")
    async with user.trainer(system.addresses["trainer"]) as trainer:
        lie = RecordJobTrafficRequest(job_id=job.job_id, traffic=NetworkTraffic(backend="none", seconds=1.0))
        call = trainer.call(trainer.stub.RecordJobTraffic, lie)
        return await refused(call, FOREIGN_OWNER, gain="another's record says what it likes")


@attack(By.USER, "drains and removes another owner's node")
async def take_a_node_away(system: System) -> Outcome:
    """Hopes that a rival's node works for nobody."""
    node = (await system.victim()).request.spec.name
    async with system.client(await system.admit("user", ATTACKER)) as client:
        found = [await refused(client.drain(node), FOREIGN_OWNER, gain="another's node is drained")]
        removing = client.remove_node(node, force=True)
        found.append(await refused(removing, FOREIGN_OWNER, gain="another's node is forgotten"))
    return worst(*found)


@attack(By.USER, "makes tokens for another owner, for a trainer and for an operator", NO_DOOR)
async def make_tokens_for_more(system: System) -> Outcome:
    """Hopes to become somebody else, or more than a user."""
    role_not_granted = Refusal("PERMISSION_DENIED", "ROLE_NOT_GRANTED")
    found = list[Outcome]()
    async with system.client(await system.admit("user", ATTACKER)) as client:
        as_another = client.door.create_token("node", owner="ada", ttl=timedelta(minutes=1))
        found.append(await refused(as_another, FOREIGN_OWNER, gain="a token for ada"))
        mighty: tuple[TokenRole, ...] = ("trainer", "selector", "operator")
        for role in mighty:
            making = client.door.create_token(role)
            found.append(await refused(making, role_not_granted, gain=f"a token for the role {role}"))
    return worst(*found)


@attack(By.USER, "turns another owner's node out, and replaces the authority", NO_DOOR)
async def shut_others_out(system: System) -> Outcome:
    """Hopes to be alone in the system."""
    node = (await system.victim()).session.node_id
    async with system.client(await system.admit("user", ATTACKER)) as client:
        found = [await refused(client.door.revoke(node), FOREIGN_OWNER, gain="another's node is out")]
        rotating = client.door.rotate_authority()
        found.append(await refused(rotating, ROLE_MAY_NOT, gain="another authority"))
    return worst(*found)


def _model_of(task: str, path: Path) -> Path:
    """A model's file that names a task of the attacker's choice."""
    origin = {"task": task, "arguments": {}, "input_shape": [2], "input_dtype": "float32", "buffers": []}
    tensors = {"weight": numpy.zeros((2, 2), dtype="float32")}
    save_file(tensors, path, {METADATA_KEY: json.dumps(origin, sort_keys=True)})
    return path


@attack(
    By.USER,
    "has a node answer with models that name os, a module there, a file",
    "a plain node refuses it too",
)
async def load_a_module_by_a_model(system: System) -> Outcome:
    """Hopes that a node imports what a model's file says built it."""
    user = await system.admit("user", ATTACKER)
    dialer, found = await system.dialer("user"), list[Outcome]()
    async with dialer.node_agent(system.addresses["open"]) as agent:
        started = await agent.call(agent.stub.StartInference, StartInferenceRequest(), INFERENCE_S)
    not_buildable = Refusal("FAILED_PRECONDITION", "MODEL_NOT_BUILDABLE")
    async with system.client(user) as client, dialer.inference(started.address) as inference:
        for number, task in enumerate(NAMED):
            path = _model_of(task, system.folder / f"model-{number}.safetensors")
            kept = await client.artifacts.put(path, kind="model", copies=1, node="open")
            call = inference.call(inference.stub.LoadModel, LoadModelRequest(digest=kept.digest), INFERENCE_S)
            found.append(await refused(call, not_buildable, gain=f"{task} is imported"))
    return worst(*found)
