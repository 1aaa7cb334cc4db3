"""Applies the owner's policy: takes the machine back when its limits or a drain say so, and lends it again.

Each second, and at once when `NodeStatus.policy_due` is set, the machine is looked at: `judge_lending` says
whether it is lent, and `decide_leave` which worker has to go.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import suppress
from typing import Protocol

from peerloom.kit.clock import Clock
from peerloom.kit.logs import get_logger
from peerloom.services.node_agent.membership.node_status import NodeStatus
from peerloom.services.node_agent.owner.leaving import LeaveRequest, Reasons, Step, decide_leave
from peerloom.services.node_agent.owner.policy import (
    HostUsage,
    MemoryUsage,
    OwnerLimits,
    first_state,
    judge_lending,
    over_memory,
)
from peerloom.services.node_agent.workers.local_pool import LocalWorkerPool, PooledWorker

_log = get_logger()
LOOK_INTERVAL_S = 1.0
_STOP_GRACE_S = 2.0
_JOBS_REMEMBERED = 100


class UsageMeter(Protocol):
    """Looks at the machine."""

    async def look(self) -> HostUsage:
        """What others than the agent and its workers do, since the last look."""

    async def memory_of(self, pids: Iterable[int]) -> Mapping[int, int]:
        """Bytes that each process uses by itself, with its children."""

    def available_bytes(self) -> int:
        """Memory that could be given to new processes now."""


class PolicyEnforcer:
    """Decides who of the pool has to leave, and has it leave.

    `apply_withheld` gets the reason whenever it changes, "" while the machine is lent, and at the start.
    """

    def __init__(
        self,
        pool: LocalWorkerPool,
        status: NodeStatus,
        meter: UsageMeter,
        clock: Clock,
        limits: OwnerLimits,
        memory_limit_bytes: int,
        handover_grace_s: float,
        apply_withheld: Callable[[str], Awaitable[None]],
    ) -> None:
        self._pool, self._status, self._meter, self._clock = pool, status, meter, clock
        self._limits, self._memory_limit_bytes = limits, memory_limit_bytes
        self._grace_s = handover_grace_s
        self._apply_withheld = apply_withheld
        self._state = first_state(limits)
        self._asked: dict[str, LeaveRequest] = {}
        self._too_big: OrderedDict[str, str] = OrderedDict()

    @property
    def withheld(self) -> str:
        """Why the owner lends nothing just now; empty while the machine is lent."""
        return self._state.reason if not self._state.lends else ""

    def why_not(self, job_id: str) -> str:
        """Why this job gets nothing just now; empty if it may."""
        if outgrown := self._pool.outgrown_by(job_id):
            return self.withheld or f"A worker of this job was ended here: {outgrown}."
        return self.withheld or self._too_big.get(job_id, "")

    async def keep(self) -> None:
        """Looks and acts until cancelled."""
        due = self._status.policy_due
        await self._apply_withheld(self.withheld)
        while True:
            await self.look()
            await self.act()
            with suppress(TimeoutError):
                async with asyncio.timeout(LOOK_INTERVAL_S):
                    await due.wait()
            due.clear()

    async def look(self) -> None:
        """Looks at the machine, and applies what changed in whether it is lent."""
        usage = await self._meter.look()
        before = self.withheld
        self._state = judge_lending(self._limits, self._state, usage, self._clock.monotonic_s())
        if bool(self.withheld) != bool(before):
            _log.info("lending_changed", lends=self._state.lends, reason=self.withheld)
        if self.withheld != before:
            await self._apply_withheld(self.withheld)

    async def act(self) -> None:
        """Asks workers to leave or lets them stay, and ends those that were asked long enough ago."""
        workers = self._pool.running()
        running = {worker.worker_id for worker in workers}
        self._asked = {key: asked for key, asked in self._asked.items() if key in running}
        too_big, why_too_big = await self._over_memory(workers)
        for worker in workers:
            is_too_big = worker.worker_id in too_big
            reasons = Reasons(why_too_big if is_too_big else "", self.withheld, self._status.is_draining)
            self._act_on(worker, reasons)

    async def _over_memory(self, workers: list[PooledWorker]) -> tuple[tuple[str, ...], str]:
        if not self._memory_limit_bytes or not workers:
            return (), ""
        used = await self._meter.memory_of([worker.process.pid for worker in workers])
        usages = [MemoryUsage(worker.worker_id, used.get(worker.process.pid, 0)) for worker in workers]
        # Those on their way out for their size free theirs: not one more has to go for it.
        staying = [usage for usage in usages if not self._is_going(usage.worker_id)]
        return over_memory(staying, self._memory_limit_bytes)

    def _is_going(self, worker_id: str) -> bool:
        return worker_id in self._asked and self._asked[worker_id].is_final

    def _act_on(self, worker: PooledWorker, reasons: Reasons) -> None:
        asked = self._asked.get(worker.worker_id)
        step, now_asked = decide_leave(asked, reasons, self._grace_s, self._clock.monotonic_s())
        if now_asked is None:
            self._asked.pop(worker.worker_id, None)
        else:
            self._asked[worker.worker_id] = now_asked
        match step:
            case Step.ASK_TO_LEAVE:
                assert now_asked is not None, "a worker that is asked has a record of it"
                self._ask_to_leave(worker, now_asked)
            case Step.LET_STAY:
                worker.process.ask_to_stay()
                _log.info("worker_may_stay", worker_id=worker.worker_id)
            case Step.END:
                self._end(worker)
            case Step.NOTHING:
                pass

    def _ask_to_leave(self, worker: PooledWorker, asked: LeaveRequest) -> None:
        worker.process.ask_to_leave(asked.reason, self._grace_s)
        if asked.is_final:  # else the same job would be given the slot again, and grow again
            self._too_big[worker.job_id] = asked.reason
            if len(self._too_big) > _JOBS_REMEMBERED:
                self._too_big.popitem(last=False)
        _log.info("worker_asked_to_leave", worker_id=worker.worker_id, reason=asked.reason)

    def _end(self, worker: PooledWorker) -> None:
        _log.warning("worker_made_to_leave", worker_id=worker.worker_id)
        self._pool.end_soon(worker, _STOP_GRACE_S)
