"""Tensors from stage to stage over the mesh of the group, and a few numbers among all stages.

A tensor goes in two messages: its form, then its values, for shapes may differ from batch to batch. Sending
begins at once and goes on while the stage computes; `flush` waits for its end.
"""

import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from peerloom.errors import InvalidArgumentError
from peerloom.worker.group.process_group import Group, all_gather_rows
from peerloom.worker.group.waits import TensorFuture
from peerloom.worker.sync import SyncTraffic
from peerloom.worker.tensor_types import TENSOR_TYPES

_ORDER = list(TENSOR_TYPES.values())
MOST_DIMENSIONS = 12
# A state on its way holds the training up, and one that never comes would for ever.
POOR_LINK_BYTES_PER_S = 1 << 16


@dataclass(frozen=True, eq=False)
class StageTensor:
    """What came from another stage; `wants_gradient`: the sender needs the loss's gradient for it."""

    tensor: Tensor
    wants_gradient: bool


class StageLinks(Protocol):
    """The ways between the stages of a pipeline; `traffic` adds up what they cost."""

    traffic: SyncTraffic

    @property
    def stage(self) -> int:
        """This worker's, from 0."""

    @property
    def stages(self) -> int:
        """How many there are."""

    def send(self, stage: int, tensor: Tensor, *, wants_gradient: bool = False) -> None:
        """Begins to send a tensor, which nobody may change before `flush` has returned."""

    def receive(self, stage: int) -> StageTensor:
        """The next tensor from that stage, on the processor. Raises what `Group.result` does."""

    def flush(self, at_most: int = 0) -> None:
        """Waits until no more than so many of the tensors that were sent are still here."""

    def gather(self, row: Sequence[float]) -> list[list[float]]:
        """The numbers of each stage, by stage: the same on all, which say as many each."""

    def patient(self, size_bytes: int) -> AbstractContextManager[None]:
        """Inside, messages may take as long as so many bytes take over a poor link."""


class MeshLinks:
    """Over the mesh of a group, whose limits and breaks end every wait."""

    def __init__(self, group: Group) -> None:
        assert group.mesh is not None, "the group of a pipeline has a mesh"
        self.traffic = SyncTraffic()
        self._group = group
        self._mesh = group.mesh
        self._sent: list[tuple[TensorFuture, Tensor]] = []
        self._messages: dict[tuple[int, int], int] = {}  # so many from one stage to another

    @property
    def stage(self) -> int:
        return self._group.rank

    @property
    def stages(self) -> int:
        return self._group.world_size

    def send(self, stage: int, tensor: Tensor, *, wants_gradient: bool = False) -> None:
        while self._sent and self._sent[0][0].done():
            self._group.result(self._sent.pop(0)[0])
        content = tensor.detach().cpu().contiguous()
        self._send(stage, form_of_tensor(content, wants_gradient))
        if content.numel():
            self._send(stage, content)

    def receive(self, stage: int) -> StageTensor:
        began_s = time.perf_counter()
        form = self._receive(stage, torch.empty(2 + MOST_DIMENSIONS, dtype=torch.int64))
        dtype, shape, wants_gradient = read_form(form)
        tensor = torch.empty(shape, dtype=dtype)
        if tensor.numel():
            self._receive(stage, tensor)
        self.traffic.exposed_s += time.perf_counter() - began_s
        return StageTensor(tensor, wants_gradient)

    def flush(self, at_most: int = 0) -> None:
        began_s = time.perf_counter()
        while len(self._sent) > at_most:
            self._group.result(self._sent.pop(0)[0])
        self.traffic.exposed_s += time.perf_counter() - began_s

    def gather(self, row: Sequence[float]) -> list[list[float]]:
        began_s = time.perf_counter()
        rows = all_gather_rows(self._group, row, torch.float64)
        self.traffic.exposed_s += time.perf_counter() - began_s
        return rows

    @contextmanager
    def patient(self, size_bytes: int) -> Iterator[None]:
        usual_s = self._mesh.limit_s
        self._mesh.limit_s = usual_s + size_bytes / POOR_LINK_BYTES_PER_S
        try:
            yield
        finally:
            self._mesh.limit_s = usual_s

    def _send(self, stage: int, content: Tensor) -> None:
        self.traffic.bytes += content.nbytes
        future = self._mesh.begin(self._number(self.stage, stage), {stage: content}, {})
        self._sent.append((future, content))

    def _receive(self, stage: int, target: Tensor) -> Tensor:
        future = self._mesh.begin(self._number(stage, self.stage), {}, {0: {stage: target}})
        self._group.result(future)
        return target

    def _number(self, sender: int, receiver: int) -> int:
        # Both ends count the messages from one to the other, so each has a number of its own, from 1.
        count = self._messages.get((sender, receiver), 0)
        self._messages[sender, receiver] = count + 1
        return (count * self.stages + sender) * self.stages + receiver + 1


def form_of_tensor(tensor: Tensor, wants_gradient: bool) -> Tensor:
    """A tensor's type and shape as numbers, int64 [14]. Raises InvalidArgumentError for an unusual one."""
    if tensor.dtype not in _ORDER or tensor.dim() > MOST_DIMENSIONS:
        found = f"{str(tensor.dtype).removeprefix('torch.')} of {tensor.dim()} dimensions"
        limit = f"a tensor of {', '.join(TENSOR_TYPES)} of at most {MOST_DIMENSIONS} dimensions"
        raise InvalidArgumentError.of_field("what goes from stage to stage", found, limit)
    numbers = [2 * _ORDER.index(tensor.dtype) + wants_gradient, tensor.dim(), *tensor.shape]
    return torch.tensor(numbers + [0] * (2 + MOST_DIMENSIONS - len(numbers)))


def read_form(form: Tensor) -> tuple[torch.dtype, list[int], bool]:
    """Type, shape, and whether a gradient is wanted, of `form_of_tensor`. Raises RuntimeError for others."""
    code, dimensions, *shape = form.tolist()
    if not (0 <= code < 2 * len(_ORDER) and 0 <= dimensions <= MOST_DIMENSIONS and min(shape) >= 0):
        raise RuntimeError(f"worker mesh: a stage announced no tensor but {form.tolist()}")
    return _ORDER[code // 2], shape[:dimensions], bool(code % 2)
