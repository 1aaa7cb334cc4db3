"""Aim: workers that have a piece of each layer train as one process does, and hold no whole layers.

Method: they are threads joined by queues, beside the same training in one piece.
"""

from collections.abc import Callable, Iterable
from pathlib import Path

import pytest
import torch
from stages_in_threads import Pipeline, QueueLinks, Sparse, Waves, in_one_piece, training_of
from torch import Tensor, nn

from peerloom.worker.plan.pipeline_training import PipelineTraining
from peerloom.worker.plan.stage_step import make_step
from peerloom.worker.task import Split, Task
from peerloom.worker.tasks.text import Transformer


def task_of(model: Callable[[], nn.Module], **more: object) -> Task:
    """As `Waves`, with this model."""
    made: Task = type("Modelled", (Waves,), {"model": lambda self: model(), **more})()
    return made


def steps(count: int) -> Callable[[PipelineTraining, QueueLinks], list[float]]:
    return lambda training, links: [make_step(training, links, lambda: None).loss for _ in range(count)]


def check_near(found: dict[str, Tensor], expected: dict[str, Tensor]) -> None:
    assert found.keys() == expected.keys()
    for name, tensor in expected.items():
        assert torch.allclose(found[name], tensor, rtol=0, atol=1e-5), name


def equal_to_one_piece(task: Task, plan: str, count: int = 50) -> Pipeline:
    expected, losses = in_one_piece(task, count)
    pieces = Pipeline(task, plan)
    told = pieces.work(steps(count))
    assert torch.allclose(torch.tensor(told[0]), torch.tensor(losses), rtol=0, atol=1e-5)
    check_near(pieces.parameters(), expected.state.model.state_dict())
    return pieces


@pytest.mark.parametrize("plan", ["tensor=2", "tensor=3,micro_batches=3", "pipeline=2,tensor=2,micro_batches=4"])
def test_it_trains_as_one_process_does(plan: str) -> None:
    equal_to_one_piece(Waves(), plan)
