"""A script says which task makes its model: its file says so too, and the model can be asked."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from test_broken_step import new_group, train
from torch import nn

import peerloom
from peerloom.errors import InvalidArgumentError, PeerloomError
from peerloom.inference.server.building import build, read_blueprint, run_part
from peerloom.inference.trusted_modules import BY_NODE_OWNER, TrustedModules
from peerloom.v1.trainer_pb2 import JobSpec
from peerloom.worker.elastic import hosting
from peerloom.worker.elastic.script_training import ScriptTraining

CPU, DIGEST, MODULE = torch.device("cpu"), "d" * 64, "nets_of_a_script"
SOURCE = """
import torch
from peerloom import RawInput, ScaleShift
from peerloom.worker.task import Split, Task


class Nets(Task):
    def __init__(self, width: str) -> None:
        self.width = int(width)

    def model(self) -> torch.nn.Module:
        return torch.nn.Sequential(torch.nn.Linear(2, self.width), torch.nn.Tanh())

    def data(self) -> tuple[Split, Split]:
        raise AssertionError("a model needs no data")


class Halves(Nets):
    raw_input = RawInput((2,), "uint8", 0, 2, ScaleShift((0.5,), (0.0,)))
"""


@pytest.fixture(autouse=True)
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    (tmp_path / f"{MODULE}.py").write_text(SOURCE)
    monkeypatch.syspath_prepend(tmp_path)
    yield
    hosting._hosts.clear()
    sys.modules.pop(MODULE, None)


def declare(task: str, inputs: Any, width: str = "3", **arguments: str) -> nn.Module:
    """Trains a model by a loop that declares it so."""
    model = nn.Sequential(nn.Linear(2, 3), nn.Tanh())
    with peerloom.elastic() as run:
        run.prepare(model, torch.optim.SGD(model.parameters(), lr=0.1))
        run.declare(task, inputs, width=width, **arguments)
        for points in run.batches([torch.ones(2)] * 4, batch_size=2):
            run.step(model(points).mean())
    return model


@pytest.mark.parametrize(
    ("name", "asked"), [("Nets", torch.ones(1, 2)), ("Halves", torch.tensor([[2, 2]]).byte())]
)
def test_a_declared_model_is_asked_as_its_task_s(tmp_path: Path, name: str, asked: torch.Tensor) -> None:
    models: list[nn.Module] = []
    task = hosting.host_script(lambda: models.append(declare(f"{MODULE}:{name}", torch.ones(1, 2))), CPU)
    training = ScriptTraining(task, JobSpec(epochs=1, batch_size=2, learning_rate=0.1), CPU)
    train(training, new_group(1))
    path = tmp_path / "model.safetensors"
    path.write_bytes(training.state.model_bytes(training.origin("the job's task", {}).to_metadata()))
    blueprint = read_blueprint(path, DIGEST, TrustedModules((MODULE,), BY_NODE_OWNER))
    answer = run_part(build(blueprint, 0, len(blueprint.layers), CPU), asked)
    torch.testing.assert_close(answer, models[0](torch.ones(1, 2)).detach())
    with pytest.raises(PeerloomError, match="inference-modules"):
        read_blueprint(path, DIGEST, TrustedModules((), BY_NODE_OWNER))


@pytest.mark.parametrize(
    ("task", "inputs", "width", "message"),
    [
        (f"{MODULE}:Nets", torch.ones(1, 2), "4", r"of 0.bias \[4\].*\[3\]"),
        (f"{MODULE}:Nets", [1.0, 2.0], "3", "inputs"),
        (f"{MODULE}:Halves", torch.ones(1, 3), "3", r"float32\[3\].*float32\[2\]"),
        (f"{MODULE}:Net", torch.ones(1, 2), "3", "Did you mean Nets"),
    ],
)
def test_a_declaration_must_be_true(task: str, inputs: Any, width: str, message: str) -> None:
    with pytest.raises(PeerloomError, match=message):
        declare(task, inputs, width)


def test_a_declaration_has_its_place_before_the_loop() -> None:
    with pytest.raises(PeerloomError, match=r"before run\.declare"), peerloom.elastic() as run:
        run.declare(f"{MODULE}:Nets", torch.ones(1, 2), width="3")
    with pytest.raises(InvalidArgumentError, match="other"):
        declare(f"{MODULE}:Nets", torch.ones(1, 2), other="1")
