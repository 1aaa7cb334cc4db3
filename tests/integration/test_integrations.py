"""The examples with Hugging Face's libraries, Lightning and torch's checkpoints, on one system."""

import importlib.util
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from worker_processes import workers_of

from peerloom import Client, Embedded, JobHandle
from peerloom.client.types import GenerationFormed, JobEvent, StepCommitted, WorkerLost
from peerloom.errors import InvalidArgumentError
from peerloom.worker.elastic.elastic_run import ElasticRun

LIMIT_S = 200.0
EXAMPLES = Path(__file__).parents[2] / "examples"
FINE_TUNING = EXAMPLES / "fine_tuning"
# Runs a script, and once more when it was started again, with an epoch more.
TWICE = """
import os
import runpy
import sys

first = os.environ["TORCHELASTIC_RESTART_COUNT"] == "0"
sys.argv = [sys.argv[1], "--epochs", "1" if first else "2"]
runpy.run_path(sys.argv[0], run_name="__main__")
sys.exit(first)
"""
# Slow enough to be struck in the middle, and, while it is alone, to be joined before the end.
PACED = """
import threading

import lightning_script
import pytorch_lightning as pl
from peerloom.integrations.epoch_batches import EpochBatches

make_step, fit = EpochBatches.make_step, pl.Trainer.fit


alone_s = 0.2  # a step of who is alone: longer each time, so that somebody joins before the last one


def make_step_later(batches, loss):
    global alone_s
    if batches._run.size != 2:
        alone_s = min(1.2 * alone_s, 10.0)
    threading.Event().wait(0.02 if batches._run.size == 2 else alone_s)
    return make_step(batches, loss)


def fit_and_tell(trainer, *given, **named):
    fit(trainer, *given, **named)
    rate = trainer.optimizers[0].param_groups[0]["lr"]
    print("fitted", trainer.global_step, trainer.current_epoch, rate)


EpochBatches.make_step, pl.Trainer.fit = make_step_later, fit_and_tell
lightning_script.main()
"""
NEEDED = ("transformers", "datasets", "peft", "accelerate", "pytorch_lightning")
pytestmark = [pytest.mark.timeout(300), pytest.mark.filterwarnings("ignore")]  # those of the libraries


@pytest.fixture(scope="module")
def system(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Embedded]:
    for name in NEEDED:
        if importlib.util.find_spec(name) is None:
            pytest.skip(f"needs {name} (peerloom[hf,accelerate,lightning])")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PEERLOOM_NODE_ALLOW_CODE", "true")
        patch.setenv("HF_HUB_OFFLINE", "1")
        with Embedded(tmp_path_factory.mktemp("system"), (1, 1)) as started:
            yield started


@pytest.fixture
def client(system: Embedded) -> Iterator[Client]:
    with Client(system.address) as opened:
        yield opened


def printed(job: JobHandle, rank: int | None = None) -> list[str]:
    return [line.line for line in job.logs() if rank is None or line.rank == rank]


def example(path: Path, monkeypatch: pytest.MonkeyPatch, *arguments: str) -> ModuleType:
    """The example as a module, its arguments set, and its neighbours importable."""
    monkeypatch.setattr("sys.argv", [str(path), *arguments])
    monkeypatch.syspath_prepend(str(path.parent))
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_a_fine_tuned_bert_loads_with_its_tokenizer(client: Client, tmp_path: Path) -> None:
    from transformers import AutoModelForSequenceClassification, AutoTokenizer

    job = client.train(str(FINE_TUNING / "bert_classifier.py"), code=FINE_TUNING, requests=2)
    result = job.result(LIMIT_S)
    assert result.succeeded, result.reason
    assert result.metric is not None
    assert result.metric > 0.95
    folder = client.fetch_model(job.id, tmp_path / "trained", format="hugging-face", shard_bytes=20_000)
    assert len(list(folder.glob("model-*.safetensors"))) > 1
    model = AutoModelForSequenceClassification.from_pretrained(folder)
    raw = load_file(job.fetch_model(tmp_path / "raw.safetensors"))
    assert all(torch.equal(raw[name], tensor) for name, tensor in model.state_dict().items())
    tokens = AutoTokenizer.from_pretrained(folder)("we saw a golden garden", return_tensors="pt")
    assert model.config.id2label[int(model.eval()(**tokens).logits.argmax())] == "cheerful"


def test_of_lora_only_the_adapter_travels_and_peft_loads_it(
    client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from peft import PeftModel
    from transformers import AutoTokenizer

    job = client.train(
        str(FINE_TUNING / "gpt2_lora.py"), code=FINE_TUNING, requests=2, script_arguments=["--epochs", "2"]
    )
    result = job.result(LIMIT_S)
    assert result.succeeded, result.reason
    assert result.model is not None
    text = example(FINE_TUNING / "gpt2_text.py", monkeypatch)
    base = text.tiny_gpt2(AutoTokenizer.from_pretrained(FINE_TUNING))
    assert result.model.size_bytes < sum(tensor.nbytes for tensor in base.parameters()) / 4
    folder = job.fetch_model(tmp_path / "adapter", format="hugging-face")
    sample = torch.arange(5, 29)[None]
    before = base(sample, labels=sample).loss
    assert PeftModel.from_pretrained(base, folder)(sample, labels=sample).loss != before


def test_gpt2_learns_its_text_here(monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    pytest.importorskip("datasets", reason="needs datasets (peerloom[hf])")
    example(FINE_TUNING / "gpt2_text.py", monkeypatch, "--epochs", "4").main()
    words = capsys.readouterr().out.split()
    assert float(words[-4]) < 0.6 * float(words[1])


def test_a_script_goes_on_from_its_distributed_checkpoint(client: Client, tmp_path: Path) -> None:
    """Of which `.metadata`, a hidden file, is a part."""
    shutil.copy(EXAMPLES / "dcp_script.py", tmp_path)
    (tmp_path / "twice.py").write_text(TWICE)
    job = client.run_script(tmp_path / "twice.py", ["dcp_script.py"], code=tmp_path, max_restarts=1)
    result = job.result(LIMIT_S)
    told = printed(job)
    assert result.succeeded, f"{result.reason}: {told}"
    assert told.count("goes on after epoch 1") == 2, "\n".join(told)
    assert [line.partition(":")[0] for line in told if line.startswith("epoch")] == ["epoch 1", "epoch 2"]


@pytest.mark.parametrize(
    ("name", "last"),
    [
        ("mingpt_script", r"epoch 1: loss .* on 2 processes"),
        ("accelerate_script", r"epoch 1: loss .* on 2 processes"),
        ("lightning_script", r"accuracy .* after epoch 1"),
    ],
)
def test_a_script_runs_as_it_is(name: str, last: str, client: Client) -> None:
    job = client.run_script(EXAMPLES / f"{name}.py", ["--epochs", "1"], max_restarts=0)
    result = job.result(LIMIT_S)
    told = printed(job)
    assert result.succeeded, f"{result.reason}: {told}"
    assert [line for line in told if re.fullmatch(last, line)]  # Accelerate's are printed once a node


def test_lightning_goes_on_when_a_worker_is_killed_and_another_joins(
    system: Embedded, client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copy(EXAMPLES / "lightning_script.py", tmp_path)
    (tmp_path / "paced.py").write_text(PACED)
    arguments = ["--epochs", "3", "--elastic"]  # of 32 steps
    job = client.train(str(tmp_path / "paced.py"), code=tmp_path, script_arguments=arguments, requests=2)
    events: list[JobEvent] = []
    for event in job.watch():
        events.append(event)
        if isinstance(event, StepCommitted) and event.step == 40:
            workers_of(system.pids["node-2"])[0].kill()
    result = job.result(LIMIT_S)
    assert result.succeeded, result.reason
    steps = [event for event in events if isinstance(event, StepCommitted)]
    assert [step.step for step in steps] == list(range(1, 97))
    assert [event for event in events if isinstance(event, WorkerLost)]
    formed = [len(event.workers) for event in events if isinstance(event, GenerationFormed)]
    assert (formed[0], formed[-1]) == (2, 2)
    ledger = job.status().ledger
    assert ledger is not None
    assert ledger.is_exact
    # StepLR(2, 0.5) is stepped at each epoch's end: once halved after three. Who joined stands there too.
    fitted = [line for line in printed(job) if line.startswith("fitted")]
    assert fitted == ["fitted 96 3 0.01"] * 2
    assert steps[-1].metrics["train_loss"] > 0

    models: list[torch.nn.Module] = []
    prepare = ElasticRun.prepare

    def noting(run: ElasticRun, model: torch.nn.Module, *rest: Any) -> Any:
        models.append(model)
        return prepare(run, model, *rest)

    monkeypatch.setattr(ElasticRun, "prepare", noting)
    example(EXAMPLES / "lightning_script.py", monkeypatch, *arguments).main()
    there = load_file(job.fetch_model(tmp_path / "model.safetensors"))
    torch.testing.assert_close(there, dict(models[0].state_dict()), rtol=1e-3, atol=1e-4)


def test_accelerate_elastically_comes_to_what_the_plain_loop_does(
    monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    pytest.importorskip("accelerate", reason="needs accelerate (peerloom[accelerate])")
    example(EXAMPLES / "accelerate_elastic.py", monkeypatch, "--epochs", "2").main()
    lines = capsys.readouterr().out.splitlines()
    assert [line.partition(":")[0] for line in lines] == ["epoch 1", "epoch 2"]
    assert float(lines[1].split()[3]) < 0.4


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"max_epochs": -1}, "max_epochs"),
        ({"max_epochs": 1, "max_steps": 3}, "max_steps"),
        ({"max_epochs": 1, "accumulate_grad_batches": 2}, "accumulate_grad_batches"),
        ({"max_epochs": 1, "limit_train_batches": 2}, "limit_train_batches"),
        ({"max_epochs": 1, "precision": "64-true"}, "precision"),
    ],
)
def test_what_a_run_cannot_do_of_the_trainer_is_named(
    settings: dict[str, Any], words: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    pytest.importorskip("pytorch_lightning", reason="needs pytorch-lightning (peerloom[lightning])")
    from torch.utils.data import DataLoader

    from peerloom.integrations.lightning import PeerloomStrategy

    script = example(EXAMPLES / "lightning_script.py", monkeypatch)
    quiet = {"logger": False, "enable_progress_bar": False, "enable_checkpointing": False}
    trainer = script.pl.Trainer(strategy=PeerloomStrategy(), **quiet, **settings)
    with pytest.raises(InvalidArgumentError, match=words):
        trainer.fit(script.Circle(), DataLoader(script.points(8, 0), batch_size=4, shuffle=True))
