"""How patient an agent is with its registry, and that a storm of agents comes to its end by that."""

import heapq
import random
from collections.abc import Callable

from peerloom.services.node_agent.membership.contact import RegistryContact

FIRST_S = 5.0
Patience = Callable[[RegistryContact], float]


async def no_wait(_: float) -> None:
    """Stands for a pause."""


async def test_patience_doubles_with_each_failure_and_an_answer_ends_that() -> None:
    contact = RegistryContact("10.0.0.1:7400", no_wait)
    waited = []
    for _ in range(5):
        waited.append(contact.patience_s(FIRST_S))
        await contact.wait_after("no answer")
    assert waited == [5.0, 10.0, 20.0, 40.0, 40.0]
    contact.note_answer()
    assert contact.patience_s(FIRST_S) == 5.0


async def test_a_storm_of_agents_drains_where_one_of_constant_patience_never_does() -> None:
    """600 come at once to a registry that answers 20 a second, also those that have gone meanwhile."""
    asked = await _requests_until_all_are_answered(600, 20.0, lambda contact: contact.patience_s(FIRST_S))
    assert 600 <= asked <= 6 * 600
    assert await _requests_until_all_are_answered(600, 20.0, lambda _: FIRST_S) > 10 * 600


async def _requests_until_all_are_answered(agents: int, answers_per_s: float, patience: Patience) -> int:
    """How often they ask in all, at most 10 times each and once more."""
    storm = _Storm(agents, answers_per_s, patience)
    while storm.unanswered and storm.asked <= 10 * agents:
        await storm.next_request()
    return storm.asked


class _Storm:
    """Agents that ask, wait, give up, pause and ask again, by a clock that jumps from request to request."""

    def __init__(self, agents: int, answers_per_s: float, patience: Patience) -> None:
        chance = random.Random(7)
        self.unanswered, self.asked = agents, 0
        self._answer_s, self._patience = 1 / answers_per_s, patience
        self._pause_s = self._free_s = 0.0
        self._contacts = [RegistryContact("10.0.0.1:7400", self._note_pause) for _ in range(agents)]
        self._due = [(chance.random() / 10, agent) for agent in range(agents)]
        heapq.heapify(self._due)

    async def _note_pause(self, pause_s: float) -> None:
        self._pause_s = pause_s

    async def next_request(self) -> None:
        """Somebody asks: the registry answers when it is through with all who asked before."""
        now_s, agent = heapq.heappop(self._due)
        contact = self._contacts[agent]
        self.asked += 1
        self._free_s = max(self._free_s, now_s) + self._answer_s
        limit_s = self._patience(contact)
        if self._free_s <= now_s + limit_s:
            self.unanswered -= 1
            return
        await contact.wait_after("no answer")
        heapq.heappush(self._due, (now_s + limit_s + self._pause_s, agent))
