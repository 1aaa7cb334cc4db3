"""The process that evaluates models, with real ones: what it finds, and that nothing it is given hangs it.

A named pipe in the place of a model is read until the end of time: so an evaluation is caught in its middle.
"""

import asyncio
import os
import subprocess
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import psutil
import pytest
import torch
from safetensors.torch import save_file

from peerloom.artifacts.bundles import pack
from peerloom.sandbox.grant import Grant
from peerloom.services.trainer.models.evaluator_process import COMMAND, EvaluatorProcess
from peerloom.worker.evaluator.evaluation_order import (
    READY,
    Evaluated,
    EvaluationOrder,
    Unable,
    Unfit,
)
from peerloom.worker.evaluator.scoring import near_ties
from peerloom.worker.model_origin import ModelOrigin
from peerloom.worker.task import load_data, load_task, sample_scores

LIMIT_S = 100.0
LONG_S = 3600.0


@pytest.fixture
async def evaluator() -> AsyncIterator[EvaluatorProcess]:
    process = EvaluatorProcess()
    yield process
    await process.close()


def tensors(task: str = "digits", **arguments: str) -> dict[str, torch.Tensor]:
    """A fresh model's."""
    torch.manual_seed(3)
    return dict(load_task(task, arguments).model().state_dict())


def order(path: Path, limit_s: float = LONG_S, task: str = "digits", **more: object) -> EvaluationOrder:
    grant = Grant(str(path.parent), private="/nowhere")
    told = {"task_arguments": {}, "inputs": {}, **more}
    return EvaluationOrder(task=task, model_path=str(path), grant=grant, limit_s=limit_s, **told)  # type: ignore[arg-type]  # by name


def metric_of(task_name: str, model_tensors: dict[str, torch.Tensor], **arguments: str) -> float:
    """Of all test samples at once."""
    task = load_task(task_name, arguments)
    _, test = load_data(task)
    model = task.model().eval()
    model.load_state_dict(model_tensors)
    inputs, targets = task.batch(test, torch.arange(len(test)))
    with torch.no_grad():
        return float(sample_scores(task, model(inputs), targets).double().mean())


async def test_a_model_is_scored_over_its_whole_test_set(evaluator: EvaluatorProcess, tmp_path: Path) -> None:
    given = tensors()
    save_file(given, path := tmp_path / "model.safetensors")
    async with asyncio.timeout(LIMIT_S):
        found = await evaluator.evaluate(order(path))
    assert isinstance(found, Evaluated)
    assert (found.metric_name, found.training_samples, found.test_samples) == ("accuracy", 1437, 360)
    assert found.metric == pytest.approx(metric_of("digits", given))


async def test_a_data_set_that_was_handed_in_as_a_folder_is_unpacked(
    evaluator: EvaluatorProcess, tmp_path: Path
) -> None:
    """16 windows of 8 bytes: 15 to train on, 1 to test on."""
    (folder := tmp_path / "data").mkdir()
    (folder / "a.txt").write_bytes(bytes(range(65, 65 + 129 - 8)) + b"12345678")
    pack(folder, bundle := tmp_path / "bundle")
    small = {"context": "8", "width": "8", "depth": "1", "heads": "1"}
    given = tensors("text", **small)
    save_file(given, path := tmp_path / "model.safetensors")
    async with asyncio.timeout(LIMIT_S):
        told = order(path, task="text", task_arguments=small, inputs={"data": str(bundle)})
        found = await evaluator.evaluate(told)
    assert isinstance(found, Evaluated), found
    assert (found.training_samples, found.test_samples) == (15, 1)
    assert found.metric == pytest.approx(metric_of("text", given, data=str(folder), **small))


async def test_a_file_that_is_no_model_of_the_task_is_told_from_one(
    evaluator: EvaluatorProcess, tmp_path: Path
) -> None:
    whole = tensors()
    first = next(iter(whole))
    (cut := tmp_path / "cut").write_bytes(b"")
    save_file(whole, path := tmp_path / "model.safetensors")
    cut.write_bytes(path.read_bytes()[:-100])
    others = {
        "it has no": {name: t for name, t in whole.items() if name != first},
        "which the task's model doesn't have": {**whole, "more": torch.zeros(1)},
        "but the task's is": {**whole, first: whole[first].double()},
    }
    async with asyncio.timeout(LIMIT_S):
        damaged = await evaluator.evaluate(order(cut))
        assert isinstance(damaged, Unfit), damaged
        for why, other in others.items():
            save_file(other, path)
            unfit = await evaluator.evaluate(order(path))
            assert isinstance(unfit, Unfit), unfit
            assert why in unfit.reason


async def test_a_model_that_says_another_thing_of_itself_than_its_job_is_unfit(
    evaluator: EvaluatorProcess, tmp_path: Path
) -> None:
    """Nodes that answer with it would build another model, or prepare inputs in another way."""
    raw = load_task("digits", {}).raw_input
    assert raw is not None
    right = ModelOrigin("digits", {}, (1, 8, 8), "float32", (), raw)
    wrong = {
        "raw inputs": [replace(right, raw_input=replace(raw, labels=())), replace(right, raw_input=None)],
        "task and the arguments": [replace(right, task="mnist"), replace(right, arguments={"data": "/x"})],
    }
    path = tmp_path / "model.safetensors"
    async with asyncio.timeout(LIMIT_S):
        save_file(tensors(), path, right.to_metadata())
        assert isinstance(await evaluator.evaluate(order(path)), Evaluated)
        for why, origins in wrong.items():
            for origin in origins:
                save_file(tensors(), path, origin.to_metadata())
                unfit = await evaluator.evaluate(order(path))
                assert isinstance(unfit, Unfit), unfit
                assert why in unfit.reason


async def test_what_never_ends_is_ended_and_the_next_is_evaluated(
    evaluator: EvaluatorProcess, tmp_path: Path
) -> None:
    os.mkfifo(endless := tmp_path / "endless")
    save_file(tensors(), path := tmp_path / "model.safetensors")
    async with asyncio.timeout(LIMIT_S):
        late = await evaluator.evaluate(order(endless, limit_s=0.5))
        assert isinstance(late, Unable)
        assert late.code == "TOO_LATE"
        assert isinstance(await evaluator.evaluate(order(path)), Evaluated)


async def test_what_needs_more_memory_than_it_may_have_is_no_answer_about_the_model(
    evaluator: EvaluatorProcess, tmp_path: Path
) -> None:
    """A model of 64 blocks, 50 million numbers each, beside a limit of a quarter of a gigabyte."""
    large = {"width": "2048", "depth": "64"}
    (tmp_path / "model.safetensors").write_bytes(b"")
    grant = Grant(str(tmp_path), private="/nowhere", memory_limit_bytes=2**28)
    given = EvaluationOrder("text", large, str(tmp_path / "model.safetensors"), {}, grant, LONG_S)
    async with asyncio.timeout(LIMIT_S):
        said = await evaluator.evaluate(given)
    assert isinstance(said, Unable), said
    assert said.code in ("NO_MEMORY", "EVALUATION_FAILED"), said


async def _child_of(pid: int) -> psutil.Process:
    while True:
        if children := psutil.Process(pid).children():
            return children[0]
        await asyncio.sleep(0)


async def test_an_evaluator_that_is_killed_is_an_answer_and_leaves_nobody(
    evaluator: EvaluatorProcess, tmp_path: Path
) -> None:
    os.mkfifo(endless := tmp_path / "endless")
    save_file(tensors(), path := tmp_path / "model.safetensors")
    async with asyncio.timeout(LIMIT_S):
        assert isinstance(await evaluator.evaluate(order(path)), Evaluated)
        asked = asyncio.create_task(evaluator.evaluate(order(endless)))
        assert evaluator.pid is not None
        child = await _child_of(evaluator.pid)
        os.kill(evaluator.pid, 9)
        said = await asked
        assert isinstance(said, Unable)
        assert said.code == "EVALUATOR_ENDED"
        await asyncio.to_thread(psutil.wait_procs, [child], LIMIT_S)
        assert not child.is_running()
        assert isinstance(await evaluator.evaluate(order(path)), Evaluated), "another one is started"


async def test_who_gives_up_ends_what_is_evaluated(evaluator: EvaluatorProcess, tmp_path: Path) -> None:
    os.mkfifo(endless := tmp_path / "endless")
    save_file(tensors(), path := tmp_path / "model.safetensors")
    async with asyncio.timeout(LIMIT_S):
        await evaluator.evaluate(order(path))
        asked = asyncio.create_task(evaluator.evaluate(order(endless)))
        assert evaluator.pid is not None
        child = await _child_of(evaluator.pid)
        asked.cancel()
        await asyncio.wait({asked})
        await asyncio.to_thread(psutil.wait_procs, [child], LIMIT_S)
    assert asked.cancelled()
    assert not child.is_running()


async def test_an_evaluator_nobody_wants_is_let_go(tmp_path: Path) -> None:
    ended = asyncio.Event()

    class Watched(EvaluatorProcess):
        async def _end(self) -> None:
            await super()._end()
            ended.set()

    process = Watched(idle_s=0.05)
    keeps = asyncio.create_task(process.keep())
    save_file(tensors(), path := tmp_path / "model.safetensors")
    async with asyncio.timeout(LIMIT_S):
        assert isinstance(await process.evaluate(order(path)), Evaluated)
        await ended.wait()
        assert process.pid is None
    keeps.cancel()
    await asyncio.wait({keeps})


def test_it_ends_with_whoever_started_it(tmp_path: Path) -> None:
    """As when the trainer is killed: nobody holds the other end of its standard input any more."""
    os.mkfifo(endless := tmp_path / "endless")
    started = subprocess.Popen(COMMAND, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert started.stdin is not None
    assert started.stdout is not None
    try:
        assert started.stdout.readline().decode().strip() == READY
        started.stdin.write(order(endless).to_json().encode() + b"\n")
        started.stdin.flush()
        child = asyncio.run(_child_of(started.pid))
        started.stdin.close()
        assert started.wait(LIMIT_S) == 0
        assert not child.is_running()
    finally:
        started.kill()
        started.wait()
        started.stdout.close()


def test_an_installation_without_torch_says_what_to_do(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    said = asyncio.run(EvaluatorProcess().evaluate(order(tmp_path / "model")))
    assert isinstance(said, Unable)
    assert said.code == "NO_TORCH"
    assert "install peerloom[train]" in said.reason


def test_near_ties_are_counted_by_hand() -> None:
    """Rows that span 10: the two largest may be 2 * 2 % of that apart, 0.4."""
    rows = torch.tensor([[10.0, 9.7, 0.0], [10.0, 9.5, 0.0], [0.0, 0.0, 0.0], [float("nan"), 1.0, 0.0]])
    assert near_ties(rows) == 3.0
    # Two samples of two rows each: three of four rows are near, so one sample and a half.
    assert near_ties(rows.view(2, 2, 3)) == 1.5
    assert near_ties(torch.tensor([[1.0], [2.0]])) == 0.0
