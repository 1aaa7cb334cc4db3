"""Stands in for the process that evaluates models: it reads them as the workers do."""

import asyncio
import random
from pathlib import Path

from peerloom.testing.scripted_state import ScriptedState
from peerloom.testing.simulated_processes import ProcessRun
from peerloom.worker.evaluator.evaluation_order import Evaluated, EvaluationAnswer, EvaluationOrder, Unable

EVALUATION_S = (0.1, 1.5)
TEST_SAMPLES = 100


class ScriptedEvaluator:
    """What the trainer needs of an evaluator's process. Its dice are its own."""

    def __init__(self, run: ProcessRun) -> None:
        self._world = run.world
        self._chance = random.Random(f"{run.world.seed}/evaluator/{run.number}")

    def prepare(self) -> None:
        """Nothing takes long."""

    async def evaluate(self, order: EvaluationOrder) -> EvaluationAnswer:
        """What the file holds, after a while."""
        script = self._world.scripts.of(order.task)
        metric = script.score(_read(order.model_path))
        await asyncio.sleep(self._chance.uniform(*EVALUATION_S))
        if self._chance.random() < self._world.evaluator_dies:
            return Unable("EVALUATOR_ENDED", "the process that evaluated it was killed")
        return Evaluated(script.metric_name, metric, 0.0, script.samples, TEST_SAMPLES)

    async def keep(self) -> None:
        """Nothing is kept."""
        await asyncio.Event().wait()

    async def close(self) -> None:
        """Nothing is open."""


def _read(path: str) -> ScriptedState:
    return ScriptedState.from_bytes(Path(path).read_bytes())
