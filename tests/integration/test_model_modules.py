"""A model's file names the task that built it: no module is imported because a stranger's file says so."""

import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from peerloom import AsyncClient
from peerloom.errors import FailedPreconditionError
from peerloom.inference.client.local_model import cached_path
from peerloom.inference.server.building import read_blueprint
from peerloom.inference.trusted_modules import BY_NODE_OWNER, TrustedModules
from peerloom.worker.model_origin import ModelOrigin
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
        with pytest.raises(FailedPreconditionError, match="--inference-modules=named_by_a_file") as caught:
            read_blueprint(path, DIGEST, TrustedModules(modules, BY_NODE_OWNER))
        assert caught.value.reason == "MODEL_NOT_BUILDABLE"
        assert caught.value.metadata == {"task": "named_by_a_file:Own"}
    assert "named_by_a_file" not in sys.modules
    named = TrustedModules(("named_by_a_file",), BY_NODE_OWNER)
    assert len(read_blueprint(path, DIGEST, named).layers) == 1
    monkeypatch.delitem(sys.modules, "named_by_a_file")


def test_models_of_built_in_tasks_need_no_word_of_the_owner(tmp_path: Path) -> None:
    path = model_of("digits", tmp_path, load_task("digits", {}).model())
    assert read_blueprint(path, DIGEST, TrustedModules((), BY_NODE_OWNER)).origin.task == "digits"


async def test_a_users_own_process_imports_none_that_the_user_does_not_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The model lies in the cache already: whoever trained it wrote its file."""
    (tmp_path / "named_by_another.py").write_text(TASK)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    cached_path(DIGEST).parent.mkdir(parents=True)
    model_of("named_by_another:Own", tmp_path, torch.nn.Linear(2, 2)).rename(cached_path(DIGEST))

    async def outputs_with(modules: str) -> tuple[int, ...]:
        monkeypatch.setenv("PEERLOOM_MODULES", modules)
        async with AsyncClient("127.0.0.1:9") as client:
            answer = await client.infer(DIGEST, np.zeros((1, 2), np.float32), "local")
            return tuple(answer.outputs.shape)

    for modules in ("", "named_by", "named_by_another.inner"):
        with pytest.raises(FailedPreconditionError, match="set PEERLOOM_MODULES=named_by_another ") as caught:
            await outputs_with(modules)
        assert caught.value.reason == "MODEL_NOT_BUILDABLE"
    assert "named_by_another" not in sys.modules
    assert await outputs_with("other, named_by_another") == (1, 2)
    monkeypatch.delitem(sys.modules, "named_by_another")
