"""What a node may come to beside gRPC: between another job's workers, and at bulk ports once it is out."""

import asyncio
import socket
import struct
from pathlib import Path

import psutil

from benchmarks.attack.attacks import attack
from benchmarks.attack.bulk import BulkTarget, ask_bulk_port, bulk_target
from benchmarks.attack.outcomes import By, Gain, Held, Outcome, ProvesNothingError
from benchmarks.attack.strangers import NO_DOOR
from benchmarks.attack.system import System
from benchmarks.attack.targets import Running, job_of_another
from peerloom.kit.dialing import Dialer
from peerloom.worker.group.relay.tls import JobTls

ANSWER_S = 5.0
TOLD_S = 20.0  # for agents to hear of who was turned out
_GREETING = struct.Struct("!II")  # generation, rank
GLOO_IS_OPEN = "gloo's ports take anybody there"


def _relay_ports(system: System, job: Running) -> list[int]:
    """Where the job's workers listen for each other; an attacker would look for it port by port."""
    found = []
    for process in psutil.Process(system.processes["open"].pid).children(recursive=True):
        log = Path(f"/proc/{process.pid}/fd/1").readlink()
        if log.parent.name == job.job_id:
            listening = [one for one in process.net_connections("tcp") if one.status == psutil.CONN_LISTEN]
            found += [one.laddr.port for one in listening if one.laddr.ip == "127.0.0.1"]
    return found


def _stays(port: int, tls: JobTls, generation: int) -> bool:
    """Whether a relay goes on with who dials it so; it closes at once for who is no worker of its job."""
    with socket.create_connection(("127.0.0.1", port), ANSWER_S) as connection:
        try:
            link = tls.dial(connection)
            link.sendall(_GREETING.pack(generation, 0))
            link.settimeout(ANSWER_S)
            return link.recv_into(memoryview(bytearray(1))) > 0
        except TimeoutError:
            return True
        except OSError:
            return False


async def _try_all(system: System, job: Running, worker: Dialer) -> list[int]:
    ports = await asyncio.to_thread(_relay_ports, system, job)
    if not ports:
        raise ProvesNothingError("no worker of the job listens")
    assert worker.identity is not None
    tls = JobTls(worker.identity, job.job_id)
    return [port for port in ports if await asyncio.to_thread(_stays, port, tls, job.generation)]


@attack(By.NODE, "dials the workers of another's job, by a certificate for a job of its own", GLOO_IS_OPEN)
async def reach_another_jobs_gloo(system: System) -> Outcome:
    """Hopes that any worker may send gradients to any other."""
    job, evil = await job_of_another(system), await system.dialer("node")
    reached = await _try_all(system, job, await system.worker(evil, "worker-of-eve", "job-of-eve"))
    if reached:
        return Gain(f"a link to the gloo of {len(reached)} workers")
    return Held("the relays close the connection")


@attack(By.NODE, "dials them by a worker's certificate that it had made for that job", GLOO_IS_OPEN)
async def certify_itself_for_another_job(system: System) -> Outcome:
    """Hopes that the registry makes a node any worker's certificate that it asks for, and relays take it."""
    job, evil = await job_of_another(system), await system.dialer("node")
    reached = await _try_all(system, job, await system.worker(evil, "worker-of-eve", job.job_id))
    if reached:
        return Gain(f"a link to the gloo of {len(reached)} workers of a job that it has no part in")
    return Held("the relays close the connection")


@attack(By.NODE, "takes chunks from a bulk port after it was turned out", NO_DOOR)
async def take_a_chunk_after_revocation(system: System) -> Outcome:
    """Hopes that a certificate which is valid for hours opens bulk ports for as long."""
    target, evil = await bulk_target(system), (await system.dialer("node")).identity
    assert evil is not None
    await asyncio.to_thread(ask_bulk_port, target, evil.client_context())
    async with system.client() as client:
        await client.door.revoke(evil.principal.id)
    try:
        async with asyncio.timeout(TOLD_S):
            while True:  # until the agent has heard of it
                await asyncio.to_thread(ask_bulk_port, target, evil.client_context())
    except TimeoutError:
        return Gain("chunks for as long as it likes")
    except (OSError, EOFError) as error:
        await _serves_others(system, target)
        return Held(f"no chunk comes any more ({type(error).__name__}), where another member gets it")


async def _serves_others(system: System, target: BulkTarget) -> None:
    member = (await system.dialer("node")).identity
    assert member is not None
    await asyncio.to_thread(ask_bulk_port, target, member.client_context())
