"""Takes the machine back when its owner's limits or a drain say so, and lends it again afterwards.

Workers are asked to leave: each hands its work over at a step boundary, and its trainer may look for a
replacement first. To a drain they may take what time they need; an owner who wants the machine back waits
no longer than the grace and a little more.
"""

import asyncio
import math
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, replace

from peerloom.kit.clock import Clock
from peerloom.kit.logs import get_logger
from peerloom.services.node_agent.crew import Crew, Worker
from peerloom.services.node_agent.lending import OwnerLimits, Usage, first_standing, judge, over_memory
from peerloom.services.node_agent.onlooker import Onlooker, memory_of

_log = get_logger()
LOOK_INTERVAL_S = 1.0
FORCE_AFTER_S = 20.0  # past the grace: to keep the state of a job that has no other node
_STOP_GRACE_S = 2.0
_JOBS_REMEMBERED = 100
DRAINED = "its node is being drained"


@dataclass(frozen=True)
class Asked:
    """A worker was asked to leave; `by_s` (monotonic) is when it will be made to, None: never.

    `is_final`: it can't be taken back, whatever changes.
    """

    reason: str
    by_s: float | None
    is_final: bool


class Lender:
    """Decides each second, and at once when `changed` is set, who of the crew has to leave."""

    def __init__(
        self,
        crew: Crew,
        clock: Clock,
        limits: OwnerLimits,
        memory_limit_bytes: int,
        handover_grace_s: float,
        is_draining: Callable[[], bool],
        on_withheld: Callable[[str], Awaitable[None]],
    ) -> None:
        self._crew, self._clock, self._limits = crew, clock, limits
        self._memory_limit_bytes = memory_limit_bytes
        self._grace_s = handover_grace_s
        self._is_draining = is_draining
        self._on_withheld = on_withheld
        self._onlooker = Onlooker()
        self._standing = first_standing(limits)
        self._asked: dict[str, Asked] = {}
        self._too_big: OrderedDict[str, str] = OrderedDict()
        self._stopping: set[asyncio.Task[None]] = set()
        self.changed = asyncio.Event()

    @property
    def withheld(self) -> str:
        """Why the owner lends nothing just now; empty while the machine is lent."""
        return self._standing.reason if not self._standing.lends else ""

    def why_not(self, job_id: str) -> str:
        """Why this job gets nothing just now; empty if it may."""
        return self.withheld or self._too_big.get(job_id, "")

    async def keep(self) -> None:
        """Looks and acts until cancelled."""
        await self._on_withheld(self.withheld)
        while True:
            await self._look()
            await self._act()
            with suppress(TimeoutError):
                async with asyncio.timeout(LOOK_INTERVAL_S):
                    await self.changed.wait()
            self.changed.clear()

    async def _look(self) -> None:
        seen = await asyncio.to_thread(self._onlooker.look)
        before = self.withheld
        self._standing = judge(self._limits, self._standing, seen, self._clock.monotonic_s())
        if bool(self.withheld) != bool(before):
            _log.info("lending_changed", lends=self._standing.lends, reason=self.withheld)
        if self.withheld != before:
            await self._on_withheld(self.withheld)

    async def _act(self) -> None:
        workers = self._crew.running()
        self._asked = {w.worker_id: asked for w in workers if (asked := self._asked.get(w.worker_id))}
        too_big, why_too_big = await self._over_memory(workers)
        for worker in workers:
            asked = self._asked.get(worker.worker_id)
            if worker.worker_id in too_big or (asked is not None and asked.is_final):
                self._ask(worker, why_too_big, by_owner=True, is_final=True)
            elif self.withheld:
                self._ask(worker, self.withheld, by_owner=True)
            elif self._is_draining():
                self._ask(worker, DRAINED, by_owner=False)
            elif asked is not None:
                del self._asked[worker.worker_id]
                worker.process.ask_to_stay()
                _log.info("worker_may_stay", worker_id=worker.worker_id)

    async def _over_memory(self, workers: list[Worker]) -> tuple[tuple[str, ...], str]:
        if not self._memory_limit_bytes or not workers:
            return (), ""
        used = await asyncio.to_thread(memory_of, [worker.process.pid for worker in workers])
        usages = [Usage(worker.worker_id, used.get(worker.process.pid, 0)) for worker in workers]
        # Those on their way out for their size free theirs: not one more has to go for it.
        staying = [usage for usage in usages if not self._is_going(usage.worker_id)]
        return over_memory(staying, self._memory_limit_bytes)

    def _is_going(self, worker_id: str) -> bool:
        return worker_id in self._asked and self._asked[worker_id].is_final

    def _ask(self, worker: Worker, reason: str, *, by_owner: bool, is_final: bool = False) -> None:
        now_s = self._clock.monotonic_s()
        asked = self._asked.get(worker.worker_id)
        if asked is None or (by_owner and asked.by_s is None):
            by_s = now_s + self._grace_s + FORCE_AFTER_S if by_owner else None
            self._asked[worker.worker_id] = Asked(reason, by_s, is_final)
            worker.process.ask_to_leave(reason, self._grace_s)
            if is_final:  # else the same job would be given the slot again, and grow again
                self._too_big[worker.job_id] = reason
                if len(self._too_big) > _JOBS_REMEMBERED:
                    self._too_big.popitem(last=False)
            _log.info("worker_asked_to_leave", worker_id=worker.worker_id, reason=reason)
        elif asked.by_s is not None and now_s >= asked.by_s:
            self._asked[worker.worker_id] = replace(asked, by_s=math.inf)
            _log.warning("worker_made_to_leave", worker_id=worker.worker_id, reason=asked.reason)
            task = asyncio.create_task(worker.process.stop(_STOP_GRACE_S))
            self._stopping.add(task)
            task.add_done_callback(self._stopping.discard)
