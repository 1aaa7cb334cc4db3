"""A task that stops at named points of its training and asks the test whether to go on.

It is user code, loaded by real workers: the product has no hook for it. The points are where a training calls
its task: `loading` (the model is built), `step` (a batch is wanted), `collective` (half through the backward
pass: the others wait in the all-reduce for this worker's part), `commit` (the update is made), `evaluation`,
`state` (the state is read, for a checkpoint or a newcomer) and `takeover` (a newcomer has got it).
"""

import hashlib
import inspect
import json
import os
import socket
import threading
from collections.abc import Iterator
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from peerloom.worker.task import Split, Task

TRAINING_SAMPLES, TEST_SAMPLES = 100, 20


class Struck(Task):
    """Three classes of points in four dimensions; 7 steps an epoch, the last one with 4 samples only."""

    epochs = 100
    batch_size = 16
    learning_rate = 0.05

    def __init__(self, socket_path: str) -> None:
        self._socket_path = socket_path
        self._lines = threading.local()
        self._model: nn.Module = nn.Identity()
        self._optimiser: _Counting | None = None

    def model(self) -> nn.Module:
        self.reach("loading")
        self._model = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 3))
        return self._model

    def data(self) -> tuple[Split, Split]:
        generator = torch.Generator().manual_seed(5)
        inputs = torch.randn(TRAINING_SAMPLES + TEST_SAMPLES, 4, generator=generator)
        targets = inputs[:, :3].argmax(dim=1)
        first, rest = slice(0, TRAINING_SAMPLES), slice(TRAINING_SAMPLES, None)
        self._train = Split(inputs[first], targets[first])
        return self._train, Split(inputs[rest], targets[rest])

    def optimiser(self, parameters: Iterator[nn.Parameter], learning_rate: float) -> torch.optim.Optimizer:
        self._optimiser = _Counting(self, parameters, learning_rate)
        return self._optimiser

    def batch(self, samples: Any, indices: Tensor) -> tuple[Tensor, Tensor]:
        if samples is self._train:
            self.reach("step", generation=_generation(), digest=self._digest())
        inputs, targets = super().batch(samples, indices)
        return inputs, targets

    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        outputs.register_hook(lambda gradient: self.reach("collective"))
        return nn.functional.cross_entropy(outputs, targets, reduction="none")

    def metric(self, outputs: Tensor, targets: Tensor) -> Tensor:
        self.reach("evaluation")
        return super().metric(outputs, targets)

    def reach(self, point: str, **more: str) -> None:
        """Tells the test where this worker is, and waits for its answer; without a test goes on."""
        is_member = dist.is_initialized()
        rank, world = (dist.get_rank(), dist.get_world_size()) if is_member else (0, 1)
        step = self._optimiser.param_groups[0]["committed"] if self._optimiser else 0
        said = {"point": point, "rank": rank, "world": world, "step": step, "pid": os.getpid(), **more}
        try:
            if not hasattr(self._lines, "file"):
                line = socket.socket(socket.AF_UNIX)
                line.connect(self._socket_path)
                self._lines.file = line.makefile("rw")
            self._lines.file.write(json.dumps(said) + "\n")
            self._lines.file.flush()
            self._lines.file.readline()
        except OSError:
            return

    def _digest(self) -> str:
        sha = hashlib.sha256()
        for parameter in self._model.parameters():
            sha.update(parameter.detach().numpy().tobytes())
        return sha.hexdigest()


class _Counting(torch.optim.SGD):
    """Counts the updates in its state, which travels with the parameters."""

    def __init__(self, task: Struck, parameters: Iterator[nn.Parameter], learning_rate: float) -> None:
        super().__init__(parameters, lr=learning_rate, momentum=0.9)
        self.param_groups[0]["committed"] = 0
        self._task = task

    def step(self, closure: Any = None) -> Any:
        loss = super().step(closure)
        self.param_groups[0]["committed"] += 1
        self._task.reach("commit")
        return loss

    def state_dict(self) -> dict[str, Any]:
        self._task.reach("state")
        return super().state_dict()

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        super().load_state_dict(state_dict)
        self._task.reach("takeover")


def _generation() -> str:
    """The generation that this worker trains in, found in the training loop below us; empty without peers."""
    frame = inspect.currentframe()
    while frame is not None:
        found = getattr(frame.f_locals.get("group"), "generation", None)
        if found is not None:
            return str(found) if dist.is_initialized() else ""
        frame = frame.f_back
    raise AssertionError("the training loop has no group any more: tell the test how to find it")
