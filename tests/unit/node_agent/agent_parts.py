"""What stands in for the world in the node agent's unit tests: scripted workers, registry and machine."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from peerloom.errors import FailedPreconditionError, PeerloomError
from peerloom.kit.clock import ManualClock
from peerloom.services.node_agent.config import NodeConfig
from peerloom.services.node_agent.membership.node_status import NodeStatus
from peerloom.services.node_agent.owner.enforcement import PolicyEnforcer
from peerloom.services.node_agent.owner.inventory import LentMachine
from peerloom.services.node_agent.owner.policy import HostUsage, OwnerLimits
from peerloom.services.node_agent.workers.local_pool import LocalWorkerPool, PooledWorker
from peerloom.services.node_agent.workers.slots import SlotTable
from peerloom.services.node_agent.workers.worker_folders import WorkerFolders
from peerloom.services.node_agent.workers.worker_logs import LogFolder
from peerloom.v1.common_pb2 import Accelerator
from peerloom.worker.assignment import Assignment, Work

LIMIT_S = 60.0
TRAINER = "127.0.0.1:9"
WORK = Work(TRAINER, "digits")
MACHINE = LentMachine(
    slots=3,
    accelerator_kind="cpu",
    accelerators=(Accelerator(kind="cpu", model="a processor", count=1, memory_bytes=1000),),
    device_memory_bytes=1000,
    threads=2,
)


def secrets_of(*worker_ids: str) -> dict[str, str]:
    """What these workers prove themselves to their trainer with, by their ids."""
    return {worker_id: worker_id[0] * 64 for worker_id in worker_ids}


class ScriptedWorker:
    """A worker without a process: it ends when the test says so, or when it is stopped."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.why_ended = ""
        self.ended = asyncio.Event()
        self.assignment: Assignment | None = None
        self.told: list[str] = []
        self.is_asked = asyncio.Event()
        self._exit_code: int | None = None

    @property
    def exit_code(self) -> int | None:
        return self._exit_code

    def assign(self, assignment: Assignment) -> None:
        self.assignment = assignment

    def ask_to_leave(self, reason: str, grace_s: float) -> None:
        self.told.append(f"leave: {reason} ({grace_s:g} s)")
        self.is_asked.set()

    def ask_to_stay(self) -> None:
        self.told.append("stay")

    async def stop(self, grace_s: float) -> None:
        self.told.append(f"stop ({grace_s:g} s)")
        self.end(-15)

    def end(self, exit_code: int) -> None:
        if self._exit_code is None:
            self._exit_code = exit_code
            self.ended.set()


class ScriptedStarter:
    """Starts scripted workers, as many as `room` says; their process ids begin at 100."""

    def __init__(self, room: int = 100) -> None:
        self.workers: list[ScriptedWorker] = []
        self.wanted: list[bool] = []
        self._room = room

    async def start(self, *, brings_code: bool) -> ScriptedWorker:
        if len(self.workers) == self._room:
            raise FailedPreconditionError("there is no room for a worker", reason="WORKER_NOT_STARTED")
        self.workers.append(ScriptedWorker(100 + len(self.workers)))
        return self.workers[-1]

    def want(self, is_wanted: bool) -> None:
        self.wanted.append(is_wanted)

    async def keep(self) -> None:
        await asyncio.Event().wait()

    async def close(self) -> None:
        pass


class ScriptedMeter:
    """A machine whose use is what the test says; each process uses the memory that `memory` has for it."""

    def __init__(self) -> None:
        self.usage = HostUsage(minute=0, others_load=0.0)
        self.memory: dict[int, int] = {}

    async def look(self) -> HostUsage:
        return self.usage

    async def memory_of(self, pids: Iterable[int]) -> Mapping[int, int]:
        return {pid: self.memory[pid] for pid in pids if pid in self.memory}

    def available_bytes(self) -> int:
        return 1000


class World:
    """An agent's parts over scripted ones, with a clock that moves when told."""

    def __init__(
        self, folder: Path, limits: OwnerLimits | None = None, memory_limit_bytes: int = 0, room: int = 100
    ) -> None:
        self.clock = ManualClock()
        self.status = NodeStatus()
        self.starter, self.meter = ScriptedStarter(room), ScriptedMeter()
        self.slots = SlotTable(MACHINE.slots, on_change=self.status.beat_due.set)
        self.logs = LogFolder(folder, 4096, jobs_kept=5)
        self.folders = WorkerFolders(folder.with_name(f"{folder.name}-workers"))
        self.pool = LocalWorkerPool(self.slots, self.starter, self.logs, self.folders, _assign, _plain)
        self.withheld: list[str] = []
        self.policy = PolicyEnforcer(
            self.pool,
            self.status,
            self.meter,
            self.clock,
            limits or OwnerLimits(),
            memory_limit_bytes,
            10.0,
            self._apply_withheld,
        )
        self.config = NodeConfig(state=str(folder), reservation_s=30.0)

    async def start(self, *worker_ids: str, job_id: str = "job-1") -> list[ScriptedWorker]:
        """Reserves slots and starts these workers in them."""
        before, now_s = len(self.starter.workers), self.clock.monotonic_s()
        held = self.slots.reserve(job_id, f"request-{before}", WORK, len(worker_ids), 0, now_s, 30.0)
        await self.pool.start(held.reservation_id, secrets_of(*worker_ids), now_s)
        return self.starter.workers[before:]

    async def _apply_withheld(self, reason: str) -> None:
        self.withheld.append(reason)
        self.status.note_withheld(reason)


async def _plain(folder: Path, worker_id: str, job_id: str) -> str:
    return ""


def _assign(worker: PooledWorker, work: Work) -> Assignment:
    return Assignment(
        worker_id=worker.worker_id,
        job_id=worker.job_id,
        work=work,
        agent_address="127.0.0.1:1",
        slot=worker.slot,
        accelerator_kind="cpu",
        device_index=0,
        interface="lo",
        threads=2,
        log_path=str(worker.log_path),
        secret=worker.secret,
        folder=str(worker.folder),
    )


async def no_wait(seconds: float) -> None:
    """In place of sleeping."""
    await asyncio.sleep(0)


class ScriptedStub:
    """The methods of a registry's stub: their names stand for themselves."""

    CheckReachability, Register, Deregister, Heartbeat, AdvertiseArtifacts = (
        "CheckReachability",
        "Register",
        "Deregister",
        "Heartbeat",
        "AdvertiseArtifacts",
    )


class ScriptedRegistry:
    """A peer that answers calls with what `answers` makes of each request, and notes them.

    An answer that is an error is raised. `converse` gives the stream of requests to `beats`.
    """

    def __init__(
        self,
        answers: Callable[[str, Any], Any],
        beats: Callable[[AsyncIterator[Any]], AsyncIterator[Any]] | None = None,
    ) -> None:
        self.address = "10.0.0.1:7400"
        self.stub = ScriptedStub()
        self.requests: list[tuple[str, Any]] = []
        self._answers, self._beats = answers, beats

    async def call(self, method: str, request: Any, timeout_s: float = 10.0) -> Any:
        self.requests.append((method, request))
        answer = self._answers(method, request)
        if isinstance(answer, Awaitable):
            answer = await answer
        if isinstance(answer, PeerloomError):
            raise answer
        return answer

    def converse(self, method: str, requests: AsyncIterator[Any]) -> AsyncIterator[Any]:
        assert self._beats is not None, "this registry takes no heartbeats"
        return self._beats(requests)
