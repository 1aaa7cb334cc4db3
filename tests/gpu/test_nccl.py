"""Training over NCCL. Two workers share one card: each says that it is another host."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from peerloom import Client, Embedded
from peerloom.client.types import GenerationFormed, StepCommitted

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.timeout(300),
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU"),
]
JOB_LIMIT_S = 120.0


def test_every_slot_a_gpu_means_nccl_and_a_killed_worker_costs_no_step(
    start_system: Callable[..., tuple[Embedded, Client]], kill_workers: Callable[[Embedded, str], int]
) -> None:
    system, client = start_system(1, 1, PEERLOOM_NODE_ACCELERATOR="cuda")
    job = client.train("digits", requests=2, epochs=40)
    events = []
    for event in job.watch():
        events.append(event)
        if isinstance(event, StepCommitted) and event.step == 100:
            kill_workers(system, "node-1")
    result = job.result(JOB_LIMIT_S)
    assert result.succeeded, result.reason
    assert job.status().backend == "nccl"
    steps = [event.step for event in events if isinstance(event, StepCommitted)]
    assert steps == list(range(1, 40 * 45 + 1))
    assert len([event for event in events if isinstance(event, GenerationFormed)]) >= 2
    assert Path(result.model_path or "nowhere").exists()
