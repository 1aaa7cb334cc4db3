"""One digest for a model's parameters: the workers' own, and that of the file that one of them hands in."""

import json
from io import BytesIO
from pathlib import Path

import pytest
import torch
from torch import nn

from peerloom.errors import DataLossError
from peerloom.kit.raw_input import RawInput
from peerloom.kit.safetensors_file import check_parameters, parameters_digest
from peerloom.worker.kept_tensors import KeptTensors
from peerloom.worker.model_origin import ModelOrigin
from peerloom.worker.training_state import TrainingState
from peerloom.worker.updating.updater import Updater


class Tied(nn.Module):
    """Parameters, one of them under two names, and running means."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(3, 3), nn.Linear(3, 3)
        self.last.weight = self.first.weight
        self.norm = nn.BatchNorm1d(3)


@pytest.fixture
def state() -> TrainingState:
    torch.manual_seed(0)
    model = Tied()
    return TrainingState(model, Updater(model, [torch.optim.SGD(model.parameters(), lr=0.1)]))


def file_of(state: TrainingState) -> bytes:
    origin = ModelOrigin("digits", {}, (3,), "float32", KeptTensors(state.model).buffers)
    return state.model_bytes(origin.to_metadata())


def test_the_file_has_the_digest_that_every_worker_tells(state: TrainingState, tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    path.write_bytes(file_of(state))
    assert check_parameters(path, state.parameters_digest()) is None


@pytest.mark.parametrize(
    "told",
    [
        {"raw_input": {"shape": ["3"], "dtype": "object"}},
        {"raw_input": "code"},
        {"raw_input": {"shape": ["3"], "dtype": "int8", "labels": ["a" * 65]}},
        {"raw_input": {"labels": ["a"] * 20_000}},
    ],
)
def test_what_a_file_says_of_its_inputs_is_read_within_limits(
    state: TrainingState, tmp_path: Path, told: dict[str, object]
) -> None:
    raw = RawInput((3,), "int8", -1, 1)
    origin = ModelOrigin("digits", {}, (3,), "int8", KeptTensors(state.model).buffers, raw)
    path = tmp_path / "model.safetensors"
    path.write_bytes(state.model_bytes(origin.to_metadata()))
    assert check_parameters(path, state.parameters_digest()) == raw
    written = {"buffers": KeptTensors(state.model).buffers, **told}
    path.write_bytes(state.model_bytes({"peerloom": json.dumps(written)}))
    with pytest.raises(DataLossError, match="of its inputs can't be believed"):
        check_parameters(path, state.parameters_digest())


def test_running_means_may_differ_and_parameters_may_not(state: TrainingState) -> None:
    before = state.parameters_digest()
    state.model.norm.running_mean += 1  # type: ignore[union-attr, operator]  # it is a BatchNorm1d
    assert state.parameters_digest() == before
    with torch.no_grad():
        state.model.last.bias[0] += 1e-6  # type: ignore[union-attr, index, operator]  # it is a Linear
    assert state.parameters_digest() != before


def test_another_file_is_refused_even_if_it_calls_its_parameters_buffers(
    state: TrainingState, tmp_path: Path
) -> None:
    agreed, path = state.parameters_digest(), tmp_path / "model.safetensors"
    with torch.no_grad():
        state.model.first.bias[0] = 7.0  # type: ignore[union-attr, operator]  # it is a Linear
    every_name = tuple(state.model.state_dict())
    for buffers in (
        KeptTensors(state.model).buffers,
        (*KeptTensors(state.model).buffers, "first.bias"),
        every_name,
    ):
        origin = ModelOrigin("digits", {}, (3,), "float32", buffers)
        path.write_bytes(state.model_bytes(origin.to_metadata()))
        with pytest.raises(DataLossError, match="not those that the workers agreed on") as refused:
            check_parameters(path, agreed)
        assert refused.value.reason == "MODEL_DIFFERS"


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\xff" * 8,
        b"\x02\0\0\0\0\0\0\0[]",
        b"\x04\0\0\0\0\0\0\0null",
        (header := b'{"a": {"dtype": "U8", "shape": [9], "data_offsets": [0, 9]}}').join(
            (len(header).to_bytes(8, "little"), b"short")
        ),
        (other := b'{"a": 7}').join((len(other).to_bytes(8, "little"), b"")),
    ],
)
def test_what_is_no_such_file_is_told(data: bytes) -> None:
    with pytest.raises(DataLossError, match="isn't a safetensors file"):
        parameters_digest(BytesIO(data))
