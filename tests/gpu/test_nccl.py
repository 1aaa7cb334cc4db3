"""Training over NCCL. Two workers share one card: each says that it is another host."""

from collections.abc import Iterator
from pathlib import Path

import psutil
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


@pytest.fixture
def system(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Embedded]:
    monkeypatch.setenv("PEERLOOM_NODE_ACCELERATOR", "cuda")
    monkeypatch.setenv("PEERLOOM_WORKERS_SHARE_CARDS", "1")
    with Embedded(tmp_path, (1, 1)) as started:
        yield started


def test_every_slot_a_gpu_means_nccl_and_a_killed_worker_costs_no_step(system: Embedded) -> None:
    with Client(system.address) as client:
        job = client.train("digits", requests=2, epochs=40)
        events = []
        for event in job.watch():
            events.append(event)
            if isinstance(event, StepCommitted) and event.step == 100:
                # The agent's children are what workers are forked from, so these are the workers.
                for child in psutil.Process(system.pids["node-1"]).children():
                    for worker in child.children():
                        worker.kill()
        result = job.result(JOB_LIMIT_S)
        assert result.succeeded, result.reason
        assert job.status().backend == "nccl"
        steps = [event.step for event in events if isinstance(event, StepCommitted)]
        assert steps == list(range(1, 40 * 45 + 1))
        assert len([event for event in events if isinstance(event, GenerationFormed)]) >= 2
        assert Path(result.model_path or "nowhere").exists()
