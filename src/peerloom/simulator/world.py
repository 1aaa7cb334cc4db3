"""The simulated network: events in order of time, no sleeping."""

import heapq
import itertools
import math
from collections.abc import Callable
from copy import deepcopy
from dataclasses import replace
from functools import cached_property

import numpy as np
import numpy.typing as npt

from peerloom.services.selector.choosing.choice import BUSY_HORIZONS, choose
from peerloom.services.selector.policies.interface import Policy, SelectionRequest
from peerloom.simulator.book import Book
from peerloom.simulator.bound import bound_gflops
from peerloom.simulator.chance import uniform
from peerloom.simulator.gang import DEADLINE_FACTOR, Gang, GangMember, JobSpec
from peerloom.simulator.host_sessions import Sessions
from peerloom.simulator.hosts import ATTACKERS, MODEL_BYTES, TYPICAL_GFLOPS
from peerloom.simulator.oracle import Truth
from peerloom.simulator.populations import Population
from peerloom.simulator.rounds import Round
from peerloom.simulator.waiting import Waiting
from peerloom.v1.selector_pb2 import EVIDENCE_KIND_TRANSFER, EVIDENCE_KIND_UNFINISHED

_ACCEPTS, _LEAVES, _LEAVES_WHEN, _MEASURES, _KEEPS_BUSY = range(10, 15)
Rows = npt.NDArray[np.intp]
Event = tuple[float, int, Callable[[int, int], None], int, int]


class World:
    """Hosts that come and go, and jobs that ask them; `now_s` is the simulated time from 0.

    A host is its index in the population; its row in the book changes when it comes back under a new name.
    """

    def __init__(self, population: Population, book: Book, seed: int) -> None:
        self.now_s = 0.0
        self.book = book
        self.hosts = population.hosts
        self.finished: list[Round] = []
        self._seed = seed
        self._asker = population.asker
        self._sessions = Sessions(population.hosts, seed, population.trace)
        self._events: list[Event] = []
        self._order = itertools.count()
        count = len(population.hosts)
        self._session = [0] * count
        self._up_since_s: list[float | None] = [None] * count
        self._busy = [0] * count
        self._gangs_of: list[set[int]] = [set() for _ in range(count)]
        self._gangs: dict[int, tuple[Gang, Round]] = {}
        self._host_of_row: list[int] = []
        self._row_of = [self._meet(index) for index in range(count)]
        self._was_asked = [False] * count
        self._requests = [0] * count
        self._failures = [0] * count
        self._gflops = [host.gflops for host in self.hosts]
        self._waiting: dict[int, Waiting] = {}
        for index, host in enumerate(self.hosts):
            self._at(self._sessions.start_s(index, 0, 0.0), self._come, index, 0)
            self._at(host.slows_at_s, self._slow, index, 0)

    def run_until(self, time_s: float) -> None:
        """Everything that happens up to a time."""
        while self._events and self._events[0][0] <= time_s:
            self.now_s, _, event, first, second = heapq.heappop(self._events)
            event(first, second)
        self.now_s = time_s

    def run_to_end(self) -> None:
        """Until no job runs or waits."""
        while self._gangs or self._waiting:
            self.now_s, _, event, first, second = heapq.heappop(self._events)
            event(first, second)

    def copy(self) -> "World":
        """The same world, which then goes its own way."""
        unchanging = (*self.hosts, *self.book.earned, *self._sessions.drawn)
        return deepcopy(self, {id(one): one for one in unchanging})

    def give_models(self) -> None:
        """Every node that is there receives a model."""
        for index, since_s in enumerate(self._up_since_s):
            if since_s is not None:
                self._transfer(index)

    def submit(
        self, job: JobSpec, policy: Policy, rng: np.random.Generator, retry_s: float = 0, counts: bool = True
    ) -> list[int]:
        """A job asks for compute now; returns the hosts that were asked. Its round is told when it ends.

        With `retry_s` it asks again so often until somebody accepts or its deadline is over. Of a job that
        doesn't count nobody asks the bound.
        """
        bound = self._bound(job, may_wait=retry_s > 0) if counts else 0.0
        told = Round(job.number, job.slots, bound_gflops=bound)
        return self._request(Waiting(job, policy, rng, retry_s, self.now_s, told))

    def _request(self, waiting: Waiting) -> list[int]:
        job, policy, rng, told = waiting.job, waiting.policy, waiting.rng, waiting.told
        columns = self.book.columns
        asker = () if self._asker is None else (columns.node_ids[self._row_of[self._asker]],)
        request = SelectionRequest(
            budget=job.budget, excluded=frozenset(asker), slots=job.slots, horizon_s=job.length_s
        )
        now_s = self.book.epoch_s + self.now_s
        choice = choose(columns, request, policy, rng, now_s=now_s)
        columns.note_asked(np.array(choice.rows, np.intp))
        columns.note_taken(choice.rows, job.slots, now_s, now_s + BUSY_HORIZONS * job.length_s)
        asked = [self._host_of_row[row] for row in choice.rows]
        turned = [self._failures[index] for index in asked if self._is_turned(index)]
        newcomers = sum(not self._was_asked[index] for index in asked)
        members: list[GangMember] = []
        for index in asked:
            free = job.slots - sum(member.slots for member in members)
            member = self._ask(index, job, free)
            if member is not None:
                members.append(member)
        attackers = sum(self.hosts[index].behaviour in ATTACKERS for index in asked)
        waiting.told = told.after(asked, len(members), newcomers, attackers, turned)
        may_wait_s = waiting.since_s + DEADLINE_FACTOR * job.length_s - self.now_s
        if members:
            self._start(job, members, waiting.told, waiting.since_s)
        elif 0 < waiting.retry_s < may_wait_s:
            self._waiting[job.number] = waiting
            self._at(self.now_s + waiting.retry_s, self._retry, job.number, 0)
        else:
            self.finished.append(waiting.told)
        return asked

    def _retry(self, number: int, _: int) -> None:
        self._request(self._waiting.pop(number))

    def _bound(self, job: JobSpec, may_wait: bool) -> float:
        hosts, there = self._true, np.ones(len(self.hosts), np.bool_)
        if not may_wait:
            there = np.array([since_s is not None for since_s in self._up_since_s])
        if self._asker is not None:
            there[self._asker] = False
        gflops = hosts.gflops if may_wait else np.array(self._gflops)
        wish = {"wanted": job.slots, "length_s": job.length_s, "budget": job.budget}
        return bound_gflops(gflops[there], hosts.slots[there], hosts.transfer_s[there], **wish)  # type: ignore[arg-type]  # by name

    def truth(self, rows: Rows, horizon_s: float) -> Truth:
        """Nodes that are there as they are, for the oracle."""
        indices, hosts = np.array(self._host_of_row)[rows], self._true
        since_s = np.array(self._up_since_s, np.float64)[indices]
        return Truth(
            slots=np.maximum(0.0, hosts.slots[indices] - np.array(self._busy)[indices]),
            gflops=np.array(self._gflops)[indices],
            accepts=hosts.accepts[indices],
            hazard=self._sessions.hazards(indices, since_s, self.now_s, horizon_s),
            transfer_s=hosts.transfer_s[indices],
        )

    @cached_property
    def _true(self) -> Truth:
        return Truth.of_hosts(self.hosts)

    def _at(self, time_s: float, event: Callable[[int, int], None], first: int, second: int) -> None:
        if math.isfinite(time_s):
            heapq.heappush(self._events, (time_s, next(self._order), event, first, second))

    def _meet(self, index: int) -> int:
        host = self.hosts[index]
        owner = host.owner
        address = f"10.{owner >> 16 & 255}.{owner >> 8 & 255}.{owner & 255}:7402"
        self._host_of_row.append(index)
        return self.book.meet(address, host.slots, host.said_gflops)

    def _come(self, index: int, number: int) -> None:
        if number and self.hosts[index].renames:
            self._row_of[index] = self._meet(index)
            self._was_asked[index] = False
        self._session[index] = number
        self._up_since_s[index] = self.now_s
        self.book.open_session(self._row_of[index], self.now_s)
        self._at(self.now_s + self._sessions.length_s(index, number, self.now_s), self._go, index, number)

    def _go(self, index: int, number: int) -> None:
        if self._session[index] != number or self._up_since_s[index] is None:
            return  # it left before, in the middle of a job
        self._leave(index, self._sessions.notice(index, number))

    def _leave(self, index: int, notice: bool) -> None:
        self._up_since_s[index] = None
        self.book.close_session(self._row_of[index], self.now_s, notice)
        for number in sorted(self._gangs_of[index]):
            self._lose(number, index)
        next_number = self._session[index] + 1
        self._at(self._sessions.start_s(index, next_number, self.now_s), self._come, index, next_number)

    def _ask(self, index: int, job: JobSpec, wanted: int) -> GangMember | None:
        """The node's answer; refusing is evidence, and so is the model that it receives."""
        host, number = self.hosts[index], job.number
        free = host.slots - self._busy[index]
        self._was_asked[index] = True
        self._requests[index] += 1
        if (
            self._up_since_s[index] is None
            or free <= 0
            or self._chance(index, number, _ACCEPTS) >= host.accepts
        ):
            self.book.note(self._row_of[index], EVIDENCE_KIND_UNFINISHED, self.now_s)
            self._failures[index] += self._is_turned(index)
            return None
        if wanted <= 0:
            return None
        taken = min(free, wanted)
        self._transfer(index)
        self._busy[index] += taken
        self._gangs_of[index].add(job.number)
        if self._leaves(index) and self._chance(index, number, _LEAVES) < host.leaves:
            after_s = self._chance(index, number, _LEAVES_WHEN) * min(job.length_s, host.leaves_within_s)
            self._at(self.now_s + after_s, self._desert, index, self._session[index])
        return GangMember(index, self._row_of[index], taken, self._gflops[index])

    def _is_turned(self, index: int) -> bool:
        return 0 < self.hosts[index].turns_after < self._requests[index]

    def _leaves(self, index: int) -> bool:
        return self.hosts[index].turns_after == 0 or self._is_turned(index)

    def _slow(self, index: int, _: int) -> None:
        self._gflops[index] *= self.hosts[index].slows_to
        for number in sorted(self._gangs_of[index]):
            gang, _told = self._gangs[number]
            gang.advance(self.now_s)
            gang.members[index].gflops = self._gflops[index]
            gang.version += 1
            self._at(gang.ends_s(), self._end, number, gang.version)

    def _chance(self, index: int, number: int, purpose: int) -> float:
        return uniform(self._seed, index, number, purpose)

    def _desert(self, index: int, number: int) -> None:
        if self._session[index] == number and self._up_since_s[index] is not None and self._gangs_of[index]:
            self._leave(index, notice=False)

    def _transfer(self, index: int) -> None:
        delay_s = self.hosts[index].transfer_s
        kind, row = EVIDENCE_KIND_TRANSFER, self._row_of[index]
        self.book.note(row, kind, self.now_s, delay_s=delay_s, transfer_bytes=MODEL_BYTES)

    def _start(self, job: JobSpec, members: list[GangMember], told: Round, since_s: float) -> None:
        gang = Gang(job, since_s, job.slots * job.length_s * TYPICAL_GFLOPS, joined_s=self.now_s)
        gang.members = {member.host: member for member in members}
        gang.runs_from_s = self.now_s + max(self.hosts[member.host].transfer_s for member in members)
        self._gangs[job.number] = (gang, told)
        self._at(gang.ends_s(), self._end, job.number, 0)

    def _lose(self, number: int, index: int) -> None:
        gang, _ = self._gangs[number]
        lost = gang.lose(index, self.now_s)
        self._failures[index] += self._is_turned(index)
        self._release(number, lost)
        self.book.note(lost.row, EVIDENCE_KIND_UNFINISHED, self.now_s)
        gang.version += 1
        self._at(gang.ends_s() if gang.members else self.now_s, self._end, number, gang.version)

    def _end(self, number: int, version: int) -> None:
        found = self._gangs.get(number)
        if found is None or found[0].version != version:
            return
        gang, told = self._gangs.pop(number)
        gang.end(self.now_s)
        for member in gang.members.values():
            self._release(number, member)
        self._note_trainings(number, list(gang.members.values()))
        took_s = max(1e-9, self.now_s - gang.started_s)
        is_finished = gang.work_left <= 1e-6 * gang.job.slots * gang.job.length_s * TYPICAL_GFLOPS
        self.finished.append(
            replace(
                told,
                interruptions=gang.interruptions,
                useful_gflops=gang.done / took_s / gang.job.slots if is_finished else 0.0,
                finish_s=took_s if is_finished else None,
                held_s=gang.held_s,
                work_of=tuple(sorted(gang.work_of.items())),
            )
        )

    def _release(self, number: int, member: GangMember) -> None:
        self._busy[member.host] -= member.slots
        self._gangs_of[member.host].discard(number)

    def _note_trainings(self, number: int, members: list[GangMember]) -> None:
        """What the job tells of speeds: its model keeps every machine busy to the same part, 1 to 100 %."""
        part = 10.0 ** (-2.0 * self._chance(0, number, _KEEPS_BUSY))
        workers = []
        for member in members:
            noise = 0.95 + 0.1 * self._chance(member.host, number, _MEASURES)
            workers.append((member.row, part * noise * member.gflops, member.slots))
        self.book.note_trainings(workers, self.now_s)
