"""A model's file names the task that built it: no module is imported because a stranger's file says so."""

import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from peerloom.errors import FailedPreconditionError
from peerloom.inference.server.building import read_blueprint
from peerloom.worker.description import ModelOrigin
from peerloom.worker.task import load_task

DIGEST = "d" * 64
TASK = """
import torch
from peerloom.worker.task import Split, Task


class Own(Task):
    def model(self) -> torch.nn.Module:
        return torch.nn.Linear(2, 2)

    def data(self) -> tuple[Split, Split]:
        raise AssertionError("a model needs no data")
"""


def model_of(task: str, folder: Path, model: torch.nn.Module) -> Path:
    origin = ModelOrigin(task, {}, (2,), "float32")
    save_file(dict(model.state_dict()), folder / "model.safetensors", origin.to_metadata())
    return folder / "model.safetensors"


def test_a_module_is_imported_only_where_the_owner_names_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "named_by_a_file.py").write_text(TASK)
    monkeypatch.syspath_prepend(tmp_path)
    path = model_of("named_by_a_file:Own", tmp_path, torch.nn.Linear(2, 2))
    for modules in ((), ("named_by",), ("named_by_a_file.inner",)):
        with pytest.raises(FailedPreconditionError, match="--inference-modules") as caught:
            read_blueprint(path, DIGEST, modules)
        assert caught.value.reason == "MODEL_NOT_BUILDABLE"
        assert caught.value.metadata == {"task": "named_by_a_file:Own"}
    assert "named_by_a_file" not in sys.modules
    assert len(read_blueprint(path, DIGEST, ("named_by_a_file",)).layers) == 1
    monkeypatch.delitem(sys.modules, "named_by_a_file")


def test_models_of_built_in_tasks_need_no_word_of_the_owner(tmp_path: Path) -> None:
    path = model_of("digits", tmp_path, load_task("digits", {}).model())
    assert read_blueprint(path, DIGEST, ()).origin.task == "digits"
