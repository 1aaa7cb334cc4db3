"""What attackers aim at: another owner's job that runs, and what the trainer knows of its workers."""

import asyncio
import sqlite3
from dataclasses import dataclass

from benchmarks.attack.system import System
from peerloom.client.jobs import AsyncJobHandle

# It takes no core for itself, and goes on until it is cancelled.
PACED = """
import threading
from peerloom.worker.tasks.digits import Digits
class Paced(Digits):
    def batch(self, split, indices):
        threading.Event().wait(0.5)
        return super().batch(split, indices)
"""


@dataclass(frozen=True)
class Running:
    """A job of ada's that trains on the node "open", and one of its two workers."""

    job_id: str
    worker_id: str
    generation: int


async def job_of_another(system: System) -> Running:
    """The one that runs already, or a new one."""
    async with system.client(await system.admit("user", "ada")) as client:
        jobs = await client.jobs(states=["running"])
        mine = [job for job in jobs if job.spec.task == "paced:Paced"]
        if mine:
            handle = await client.job(mine[0].id)
        else:
            handle = await client.train(
                "paced:Paced",
                labels={"code": "yes"},
                epochs=100_000,
                batch_size=512,
                requests=1,
                min_workers=2,
                max_workers=2,
            )
        return await _once_it_runs(handle)


async def _once_it_runs(handle: AsyncJobHandle) -> Running:
    async for _ in handle.watch():
        job = await handle.status()
        if job.state == "running":
            worker = next(worker for worker in job.workers if not worker.ended)
            return Running(job.id, worker.id, job.generation)
    raise RuntimeError(f"{handle.id} ended: {(await handle.status()).reason}")


async def stolen_secret(system: System, worker_id: str) -> str:
    """A worker's secret, by a look into the trainer's database that no attacker has."""

    def look() -> str:
        database = system.folder / "trainer" / "trainer.sqlite"
        with sqlite3.connect(f"file:{database}?mode=ro", uri=True) as connection:
            query = "select secret from worker_secrets where worker_id = ?"
            return str(connection.execute(query, [worker_id]).fetchone()[0])

    return await asyncio.to_thread(look)
