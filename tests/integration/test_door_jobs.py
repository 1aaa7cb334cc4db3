"""Jobs and questions in a system with a door: they work, and go on over renewals and another authority."""

import asyncio
from pathlib import Path

import numpy
import pytest
from door_system import DoorSystem
from node_agent_parts import StartService
from paced_jobs import next_epoch, put_paced_task

from peerloom.errors import PermissionDeniedError
from peerloom.kit.dialing import Dialer
from peerloom.kit.identity import Identity
from peerloom.v1.admission_pb2 import WatchTrustRequest
from peerloom.v1.registry_pb2 import NodeState, WatchNodesRequest

LIMIT_S = 150.0
LIFE_S = 20.0  # so that all certificates end, and the authority is replaced, within one short job
pytestmark = pytest.mark.timeout(240)


async def new_authority(system: DoorSystem) -> bytes:
    """Replaces the authority; waits until the new one signs. All that count then, that one first."""
    dialer = Dialer(Identity(system.operator_file))
    async with system.client() as client, dialer.admission(system.address) as door:
        stream = door.stream(door.stub.WatchTrust, WatchTrustRequest())
        before = (await anext(stream)).authorities
        await client.door.rotate_authority()
        async for trust in stream:
            if not trust.authorities.startswith(before):
                return trust.authorities
    raise AssertionError("the registry ended the stream")


async def test_a_job_goes_on_while_every_certificate_and_the_authority_are_replaced(
    start_service: StartService, tmp_path: Path
) -> None:
    system = DoorSystem(tmp_path, start_service, LIFE_S)
    async with asyncio.timeout(LIMIT_S), system.client() as client:
        put_paced_task(tmp_path, 0.2)  # what is tested takes a certificate's life, not work
        started = await system.start_all(("ada", "bob"), PYTHONPATH=str(tmp_path))
        names = ("registry", "selector", "trainer", "node-1", "node-2")
        held = [tmp_path / name / "identity.pem" for name in names]
        job = await client.train("paced:Paced", requests=2, epochs=100_000, batch_size=512)
        events = job.watch()
        await next_epoch(events)
        authorities = await new_authority(system)
        while any(Identity(path).current.authorities != authorities for path in held):
            await next_epoch(events)
        # The workers' first certificates have ended; they come back to the trainer with others.
        place = ("--listen", started["trainer"].address)
        started["trainer"].kill()
        system.start_service("trainer", "", *place)
        await next_epoch(events)
        await next_epoch(events)
        await job.cancel()
        ended = await job.status()
    assert ended.ledger is not None
    assert ended.ledger.is_exact, ended.ledger.verdict
    assert ended.ledger.discarded_samples == 0
    assert ended.generation == 1  # nobody was lost, and no step made again
    assert {answer.name for answer in ended.answers} == {"node-1", "node-2"}


async def test_a_model_is_trained_asked_and_kept_from_others(
    start_service: StartService, tmp_path: Path
) -> None:
    system = DoorSystem(tmp_path, start_service)
    async with asyncio.timeout(LIMIT_S):
        started = await system.start_all(("ada", "bob"))
        user, other = await system.admit("user", "ada"), await system.admit("user", "bob")
        looking = await system.admit("dashboard", "ada")
        async with system.client(user) as client:
            job = await client.train("digits", requests=2, epochs=1)
            model = (await job.result()).raise_for_state().model
            assert model is not None
            samples = numpy.zeros((4, 1, 8, 8), dtype="float32")
            for mode in ("remote", "split"):
                answer = await client.infer(model.digest, samples, mode=mode)  # type: ignore[arg-type]
                assert answer.outputs.shape == (4, 10)
            fetched = await job.fetch_model(tmp_path / "fetched.safetensors")
            assert fetched.stat().st_size == model.size_bytes
        async with system.client(other) as client:
            with pytest.raises(PermissionDeniedError, match="belongs to ada, not to bob"):
                await (await client.job(job.id)).cancel()
        async with system.client(looking) as client:
            assert (await (await client.job(job.id)).status()).state == "succeeded"
            with pytest.raises(PermissionDeniedError, match="isn't for the role dashboard"):
                await client.train("digits")
        async with system.client() as client:
            node = await client.node("node-2")
            await client.door.revoke(node.id)
        # Its agent, which lives, can't beat any more, nor register again.
        dialer = Dialer(Identity(system.operator_file))
        async with dialer.registry(system.address) as registry:
            async for event in registry.stream(registry.stub.WatchNodes, WatchNodesRequest()):
                if event.node.node_id == node.id and event.node.state == NodeState.NODE_STATE_DEAD:
                    break
        assert await asyncio.to_thread(started["node-2"].process.wait, LIMIT_S) == 2
        assert "was revoked" in started["node-2"].log()
