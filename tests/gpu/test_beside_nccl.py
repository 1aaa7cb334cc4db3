"""What GPUs do beside all-reduces over NCCL: with slots that have none, stages, other methods, scripts."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from peerloom import Client, Embedded, JobHandle, JobResult, StepCommitted

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.timeout(300),
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU"),
]
LIMIT_S = 60.0
NO_BUBBLEWRAP = os.geteuid() == 0 and not shutil.which("bwrap")
ON_GPU = {"PEERLOOM_NODE_ACCELERATOR": "cuda"}
METHODS = {
    "bsp-ps": "gloo",
    "bytescheduler-a2a": "gloo",
    "codec=int4": "gloo",
    "codec=mxfp4": "gloo",
    "topology=doubling": "gloo",
    "asp": "nccl",
    "auto": "gloo",
    "mg-wfbp": "nccl",
    "codec=bf16": "nccl",
    "codec=powersgd:2": "nccl",
    "local-sgd": "nccl",
}
SCRIPT = """
import os

import torch
import torch.distributed as dist

dist.init_process_group("nccl", device_id=torch.device("cuda", int(os.environ["LOCAL_RANK"])))
total = torch.ones(1, device="cuda")
dist.all_reduce(total)
print("sum", int(total), "by", dist.get_backend(), flush=True)
dist.destroy_process_group()
"""
StartSystem = Callable[..., tuple[Embedded, Client]]


def trained(job: JobHandle) -> JobResult:
    """The result of a job that succeeded, with an exact ledger and a model that has learnt."""
    result, ledger = job.result(LIMIT_S), job.status().ledger
    assert result.succeeded, result.reason
    assert ledger is not None
    assert ledger.is_exact, ledger.verdict
    assert result.metric is not None
    assert result.metric > 0.8
    return result


def test_a_gpu_and_cores_train_one_model_over_gloo(start_system: StartSystem) -> None:
    """A node of one slot takes the card; one of two slots can't give each a card, and lends its cores."""
    _, client = start_system(1, 2)
    kinds = {node.name: {one.kind for one in node.accelerators} for node in client.nodes()}
    assert kinds == {"node-1": {"cuda"}, "node-2": {"cpu"}}
    job = client.train("digits", requests=3, min_workers=3, epochs=4, seed=3)
    trained(job)
    assert job.status().backend == "gloo"


@pytest.mark.parametrize("sync", METHODS)
def test_each_method_trains_on_gpus(sync: str, start_system: StartSystem) -> None:
    _, client = start_system(1, 1, **ON_GPU)
    job = client.train("digits", requests=2, min_workers=2, epochs=8, sync=sync, seed=3)
    trained(job)
    assert job.status().backend == METHODS[sync]


@pytest.mark.parametrize("plan", ["pipeline=2", "sharded=2"])
def test_parts_on_gpus_outlive_the_death_of_one(
    plan: str, start_system: StartSystem, kill_workers: Callable[[Embedded, str], int]
) -> None:
    system, client = start_system(1, 1, 1, **ON_GPU)
    job = client.train("digits", plan=plan, epochs=8, requests=3, seed=3)
    killed = 0
    for event in job.watch():
        if isinstance(event, StepCommitted) and event.step == 45 and not killed:
            victim = next(worker for worker in job.status().workers if worker.rank == 1)
            killed = kill_workers(system, victim.node_name)
    assert killed
    trained(job)


@pytest.mark.skipif(NO_BUBBLEWRAP, reason="root's scripts have no GPU without bubblewrap (decision 93)")
def test_a_script_finds_its_card_and_nccl(start_system: StartSystem, tmp_path: Path) -> None:
    _, client = start_system(1, 1, PEERLOOM_NODE_ALLOW_CODE="true", **ON_GPU)
    script = tmp_path / "sums.py"
    script.write_text(SCRIPT)
    job = client.run_script(script)
    result = job.result(LIMIT_S)
    lines = [line.line for line in job.logs()]
    assert result.succeeded, f"{result.reason}: {lines}"
    assert [line for line in lines if line.startswith("sum")] == ["sum 2 by nccl"] * 2


def test_a_node_answers_with_a_model_on_its_gpu(start_system: StartSystem) -> None:
    _, client = start_system(1, **ON_GPU)
    model = trained(client.train("digits", requests=1, epochs=8, seed=3)).model
    assert model is not None
    inputs = np.random.default_rng(3).integers(0, 17, (8, 1, 8, 8), dtype=np.uint8)
    far = client.infer(model.digest, inputs, "remote")
    near = client.infer(model.digest, inputs, "local")
    np.testing.assert_allclose(far.outputs, near.outputs, atol=1e-4)
