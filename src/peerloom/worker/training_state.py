"""What a worker must know to go on: parameters, what updates them, and how far it has come.

Every worker holds the whole of it. It travels as safetensors bytes, never as a pickle. Chance needs no
state: each step seeds its own from the job's seed, the step and the rank.
"""

import json
from collections.abc import Callable, Iterable, Mapping
from io import BytesIO
from typing import Any, Protocol

import torch
from safetensors import SafetensorError
from safetensors.torch import load, save

from peerloom.errors import DataLossError, InvalidArgumentError
from peerloom.kit.local_rounds import LocalRounds, rounds_from
from peerloom.kit.safetensors_file import METADATA_KEY, parameters_digest
from peerloom.worker.kept_tensors import KeptTensors
from peerloom.worker.updating.plain_state import put_together, taken_to_pieces
from peerloom.worker.updating.updater import Updater


class Registered(Protocol):
    """What a user wants to travel with the state: an average of parameters, say, or a counter."""

    def state_dict(self) -> Mapping[str, Any]:
        """Numbers, text, tensors, and lists, tuples and mappings of those."""

    def load_state_dict(self, state_dict: dict[str, Any], /) -> object:
        """Takes over what another worker's `state_dict` gave."""


class TrainingState:
    """A model with its updater; `step` counts committed steps, `evaluated` the epochs measured."""

    def __init__(self, model: torch.nn.Module, updater: Updater) -> None:
        self.model = model
        self.updater = updater
        self.step = 0
        self.evaluated = 0
        self.epoch_loss_sum = 0.0
        self.measured_loss_sum = 0.0
        self.registered: dict[str, Registered] = {}
        self.rounds = ""  # of local steps, whose outer optimiser `updater` is
        self._kept = KeptTensors(model)
        self._base = _fingerprint_of(self._kept.base())

    def to_bytes(self) -> bytes:
        """All of it as safetensors, the counters in a tensor of their own."""
        return self.copy()()

    def copy(self) -> Callable[[], bytes]:
        """A copy of now; the function that is returned makes `to_bytes` of it, slowly, in any thread."""
        copied = {n: t.detach().to("cpu", copy=True).contiguous() for n, t in self.tensors().items()}
        return lambda: save(copied)

    def tensors(self) -> dict[str, torch.Tensor]:
        """What `to_bytes` writes, by name: its own tensors, not copies."""
        described, tensors = self.updater.state()
        for name, tensor in self._kept.tensors().items():
            tensors[f"model.{name}"] = tensor
        counters = {
            "step": self.step,
            "evaluated": self.evaluated,
            "epoch_loss_sum": self.epoch_loss_sum,
            "measured_loss_sum": self.measured_loss_sum,
            "rounds": self.rounds,
        }
        registered = {
            name: taken_to_pieces(each.state_dict(), f"registered.{name}", tensors)
            for name, each in self.registered.items()
        }
        described_all = {**counters, "updater": described, "registered": registered, "base": self._base}
        tensors["counters"] = _text(json.dumps(described_all))
        return tensors

    def size_bytes(self) -> int:
        """About as many bytes as `to_bytes` has."""
        return sum(
            t.numel() * t.element_size() for t in [*self._kept.tensors().values(), *self.updater.moments()]
        )

    def fingerprint(self) -> int:
        """A number below 2**62, other for other parameters or another updater; against accidents only."""
        tensors = [*self.model.parameters(), *self.updater.moments()]
        return _fingerprint_of(tensors, self.updater.fingerprint())

    def from_bytes(self, data: bytes) -> None:
        """Takes over what another worker's `to_bytes` gave. Raises DataLossError if it doesn't fit."""
        self.take(tensors_of(data))

    def take(self, tensors: dict[str, torch.Tensor]) -> None:
        """Takes over what another worker's `to_bytes` held. Raises DataLossError if it doesn't fit."""
        try:
            counters = _counters_in(tensors)
            model = {n.removeprefix("model."): t for n, t in tensors.items() if n.startswith("model.")}
            if counters["rounds"] != self.rounds:
                raise ValueError(
                    f"its rounds are {counters['rounds'] or 'none'}, and not {self.rounds or 'none'}"
                )
            if counters["base"] != self._base:
                raise ValueError("its adapter was trained on another base model: build that alike everywhere")
            self._kept.take(model)
            self.updater.load(counters["updater"], tensors)
            if counters["registered"].keys() != self.registered.keys():
                raise ValueError(f"it has registered {', '.join(counters['registered']) or 'nothing'}")
            for name, each in self.registered.items():
                each.load_state_dict(put_together(counters["registered"][name], tensors))
        except (KeyError, ValueError, RuntimeError) as error:
            raise DataLossError(f"it isn't a state of this model: {error}") from error
        self.step, self.evaluated = counters["step"], counters["evaluated"]
        self.epoch_loss_sum = counters["epoch_loss_sum"]
        self.measured_loss_sum = counters["measured_loss_sum"]

    def close_epoch(self, evaluated: int, metric: float) -> None:
        """So many epochs are measured now, the last by `metric`; the next one's losses begin at nothing."""
        self.updater.measured(metric)
        self.evaluated = evaluated
        self.measured_loss_sum, self.epoch_loss_sum = self.epoch_loss_sum, 0.0

    def reopen_epoch(self, steps_per_epoch: int) -> None:
        """Forgets the measurement of an epoch that has just ended: others who made its last step may lack it.

        In a generation that begins there all measure it, or some would while the others train on.
        """
        if self.step and self.evaluated * steps_per_epoch == self.step:
            self.evaluated -= 1
            self.updater.measured(None)
            self.epoch_loss_sum = self.measured_loss_sum

    def model_bytes(self, metadata: dict[str, str] | None = None) -> bytes:
        """The model alone as safetensors, loadable into plain torch, with the file's `metadata`."""
        tensors = {n: t.detach().cpu().contiguous().clone() for n, t in self._kept.tensors().items()}
        return save(tensors, metadata)

    def load_model(self, data: bytes) -> None:
        """Takes parameters from safetensors bytes. Raises DataLossError if they don't fit."""
        try:
            self._kept.take(load(data))
        except (ValueError, RuntimeError) as error:
            raise DataLossError(f"the initial model doesn't fit the task's model: {error}") from error

    def parameters_digest(self) -> str:
        """That of the model's file (`kit.safetensors_file`), equal on two workers only if they agree."""
        metadata = {METADATA_KEY: json.dumps({"buffers": self._kept.buffers})}
        return parameters_digest(BytesIO(self.model_bytes(metadata)))


def tensors_of(data: bytes) -> dict[str, torch.Tensor]:
    """What `to_bytes` gave, by name. Raises DataLossError where that isn't a file of tensors."""
    try:
        return load(data)
    except SafetensorError as error:
        raise DataLossError(f"it isn't a state of this model: {error}") from error


def rounds_in(tensors: Mapping[str, torch.Tensor]) -> LocalRounds | None:
    """The rounds of local steps that a state was written in; None: gradients. Raises DataLossError."""
    try:
        return rounds_from(_counters_in(tensors)["rounds"])
    except (KeyError, ValueError, InvalidArgumentError) as error:
        raise DataLossError(f"it isn't a state of this model: {error}") from error


def _counters_in(tensors: Mapping[str, torch.Tensor]) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(bytes(tensors["counters"].tolist()))
    return found


def _fingerprint_of(tensors: Iterable[torch.Tensor], total: int = 0) -> int:
    for tensor in tensors:
        bits = tensor.detach().contiguous().view(-1)
        whole = {2: torch.int16, 4: torch.int32, 8: torch.int64}.get(bits.element_size(), torch.uint8)
        total = (1_000_003 * total + int(bits.view(whole).sum(dtype=torch.int64))) % 2**62
    return total


def _text(text: str) -> torch.Tensor:
    return torch.tensor(list(text.encode()), dtype=torch.uint8)
