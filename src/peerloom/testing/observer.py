"""Where the members of generations meet; who checks promises looks at more than that."""

import random
from typing import Any

from peerloom.testing.memory_network import MemoryNetwork
from peerloom.testing.scripted_collective import Collective
from peerloom.v1.trainer_pb2 import ConfigureGeneration
from peerloom.worker.assignment import Assignment


class Observer:
    """Is told what workers do. `chance` is the seed of how members of a generation hear of each other."""

    def __init__(self, network: MemoryNetwork, chance: str) -> None:
        self._network, self._chance = network, random.Random(chance)
        self._collectives: dict[tuple[str, int], Collective] = {}

    def collective(self, assignment: Assignment, config: ConfigureGeneration) -> Collective:
        """Where the members of a generation meet."""
        key = (assignment.job_id, config.generation)
        if key not in self._collectives:
            self._collectives[key] = self._make(key, config.world_size)
        return self._collectives[key]

    def slot_taken(self, node: str, slot: int, worker: str) -> None:
        """A worker runs in a slot."""

    def slot_freed(self, node: str, slot: int, worker: str) -> None:
        """The worker is gone."""

    def completed(self, key: tuple[str, int], what: str) -> None:
        """All members of a generation, by job and number, have done something."""

    def mismatched(self, key: tuple[str, int], whats: str) -> None:
        """They do different things."""

    def _make(self, key: tuple[str, int], size: int) -> Collective:
        def completed(what: str, places: list[Any]) -> None:
            self.completed(key, what)

        def mismatched(whats: str) -> None:
            self.mismatched(key, whats)

        return Collective(self._network, self._chance, key[1], size, completed, mismatched)
