"""Stands in for the process that evaluates models: it reads them as the workers do."""

import asyncio
import random
from pathlib import Path

from peerloom.worker.evaluator.evaluation_order import Evaluated, EvaluationAnswer, EvaluationOrder, Unable
from tests.simulation.processes import Run
from tests.simulation.training import SAMPLES, State

EVALUATION_S = (0.1, 1.5)
DIES = 0.1  # so often: an evaluator may be killed, and is no reason for a job to fail
TEST_SAMPLES = 100


class ScriptedEvaluator:
    """What the trainer needs of an evaluator's process. Its dice are its own."""

    def __init__(self, run: Run) -> None:
        self._chance = random.Random(f"{run.world.seed}/evaluator/{run.number}")

    def prepare(self) -> None:
        """Nothing takes long."""

    async def evaluate(self, order: EvaluationOrder) -> EvaluationAnswer:
        """What the file holds, after a while."""
        metric = _read(order.model_path).metric()
        await asyncio.sleep(self._chance.uniform(*EVALUATION_S))
        if self._chance.random() < DIES:
            return Unable("EVALUATOR_ENDED", "the process that evaluated it was killed")
        return Evaluated("accuracy", metric, 0.0, SAMPLES, TEST_SAMPLES)

    async def keep(self) -> None:
        """Nothing is kept."""
        await asyncio.Event().wait()

    async def close(self) -> None:
        """Nothing is open."""


def _read(path: str) -> State:
    return State.from_bytes(Path(path).read_bytes())
