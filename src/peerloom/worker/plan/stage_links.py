"""Tensors from worker to worker of a pipeline over the mesh of its group, and a few numbers among all.

A tensor goes in two messages: its form, then its values, for shapes may differ from batch to batch. With a
codec the values are those that the codec gives back, in the tensor's own type. Sending
begins at once and goes on while the stage computes; `flush` waits for its end.
"""

import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from peerloom.kit.sync_method import NONE
from peerloom.worker.group.process_group import Group
from peerloom.worker.group.waits import TensorFuture
from peerloom.worker.plan.stage_message import FORM_NUMBERS, TensorForm, decoded, empty_content, encoded
from peerloom.worker.sync import SyncTraffic

# A state on its way holds the training up, and one that never comes would for ever.
POOR_LINK_BYTES_PER_S = 1 << 16
# The same two workers have several ways between them, each with an order of its own. What goes by the later
# ones is less urgent: it travels while nothing else does. Of shards two ways each are alike.
STEPS, STATES, CHANGES = range(3)
SHARD_VALUES, SHARD_GRADIENTS = (3, 4), (5, 6)
_URGENCIES = (0, -1, -2, -3, -3, -4, -4)


@dataclass(frozen=True, eq=False)
class StageTensor:
    """What came from another worker; `wants_gradient`: the sender needs the loss's gradient for it."""

    tensor: Tensor
    wants_gradient: bool


class StageLinks(Protocol):
    """The ways between the workers of a pipeline; `traffic` adds up what they cost."""

    traffic: SyncTraffic

    @property
    def rank(self) -> int:
        """This worker's, from 0."""

    @property
    def workers(self) -> int:
        """How many there are."""

    def send(self, rank: int, tensor: Tensor, *, wants_gradient: bool = False, codec: str = NONE) -> None:
        """Begins to send a tensor, which nobody may change before `flush` has returned.

        One of floating-point numbers goes by the `codec`, of ACTIVATION_CODECS, where that makes it shorter.
        """

    def receive(self, rank: int) -> StageTensor:
        """The next tensor from that worker, on the processor. Raises what `Group.result` does."""

    def flush(self, at_most: int = 0) -> None:
        """Waits until no more than so many of the tensors that were sent are still here."""

    def gather(self, row: Sequence[float]) -> list[list[float]]:
        """The numbers of each worker, by rank: the same on all, which say as many each."""

    def patient(self, size_bytes: int) -> AbstractContextManager[None]:
        """Inside, messages may take as long as so many bytes take over a poor link."""


class ChangeLinks(Protocol):
    """Bytes from worker to worker, whose number the receiver knows, and which nobody waits for at once."""

    def begin_send(self, rank: int, content: Tensor) -> TensorFuture:
        """Begins to send bytes, which nobody may change before the future is done."""

    def begin_receive(self, rank: int, target: Tensor) -> TensorFuture:
        """Begins to await the next bytes of that worker."""

    def result(self, future: TensorFuture) -> Tensor:
        """Waits for one of these. Raises what `Group.result` does."""


class WorkerLinks(StageLinks, ChangeLinks, Protocol):
    """Both, by the same way."""

    def post(self, rank: int, content: Tensor) -> None:
        """As `begin_send`, of bytes that nobody changes before `flush` has returned."""

    def beside(self, channel: int) -> "WorkerLinks":
        """Another way between the same workers, the same each time."""


class MeshLinks:
    """Over the mesh of a group, whose limits and breaks end every wait. One thread uses a `channel`."""

    def __init__(self, group: Group, channel: int = STEPS) -> None:
        assert group.mesh is not None, "the group of a pipeline has a mesh"
        self.traffic = SyncTraffic()
        self._channel = channel
        self._group = group
        self._mesh = group.mesh
        self._sent: list[tuple[TensorFuture, Tensor]] = []
        self._messages: dict[tuple[int, int], int] = {}  # so many from one rank to another
        self._beside: dict[int, MeshLinks] = {}

    @property
    def rank(self) -> int:
        return self._group.rank

    @property
    def workers(self) -> int:
        return self._group.world_size

    def send(self, rank: int, tensor: Tensor, *, wants_gradient: bool = False, codec: str = NONE) -> None:
        content = tensor.detach().cpu().contiguous()
        form = TensorForm.of(content, wants_gradient, codec)
        self.post(rank, form.to_numbers())
        if content.numel():
            self.post(rank, encoded(content, form.codec))

    def receive(self, rank: int) -> StageTensor:
        began_s = time.perf_counter()
        numbers = self._receive(rank, torch.empty(FORM_NUMBERS, dtype=torch.int64))
        form = TensorForm.of_numbers(numbers)
        content = empty_content(form)
        if content.numel():
            self._receive(rank, content)
        self.traffic.exposed_s += time.perf_counter() - began_s
        return StageTensor(decoded(content, form), form.wants_gradient)

    def flush(self, at_most: int = 0) -> None:
        began_s = time.perf_counter()
        while len(self._sent) > at_most:
            self._group.result(self._sent.pop(0)[0])
        self.traffic.exposed_s += time.perf_counter() - began_s

    def gather(self, row: Sequence[float]) -> list[list[float]]:
        # One trip. The library's all-reduce would take two round trips for each of the others.
        began_s = time.perf_counter()
        rows = torch.empty(self.workers, len(row), dtype=torch.float64)
        rows[self.rank] = torch.tensor(row, dtype=torch.float64)
        others = [rank for rank in range(self.workers) if rank != self.rank]
        for rank in others:
            self.post(rank, rows[self.rank])
        for coming in [self.begin_receive(rank, rows[rank]) for rank in others]:
            self._group.result(coming)
        self.traffic.exposed_s += time.perf_counter() - began_s
        found: list[list[float]] = rows.tolist()
        return found

    @contextmanager
    def patient(self, size_bytes: int) -> Iterator[None]:
        usual_s = self._mesh.limit_s
        self._mesh.limit_s = usual_s + size_bytes / POOR_LINK_BYTES_PER_S
        try:
            yield
        finally:
            self._mesh.limit_s = usual_s

    def begin_send(self, rank: int, content: Tensor) -> TensorFuture:
        self.traffic.bytes += content.nbytes
        number, patience_s = self._number(self.rank, rank), self._patience_s(content)
        outgoing = {rank: content}
        return self._mesh.begin(
            number, outgoing, {}, urgency=_URGENCIES[self._channel], patience_s=patience_s
        )

    def begin_receive(self, rank: int, target: Tensor) -> TensorFuture:
        number, patience_s = self._number(rank, self.rank), self._patience_s(target)
        return self._mesh.begin(number, {}, {0: {rank: target}}, patience_s=patience_s)

    def result(self, future: TensorFuture) -> Tensor:
        return self._group.result(future)

    def _patience_s(self, content: Tensor) -> float:
        return content.nbytes / POOR_LINK_BYTES_PER_S if self._channel != STEPS else 0.0

    def post(self, rank: int, content: Tensor) -> None:
        while self._sent and self._sent[0][0].done():
            self._group.result(self._sent.pop(0)[0])
        self._sent.append((self.begin_send(rank, content), content))

    def beside(self, channel: int) -> "MeshLinks":
        if channel not in self._beside:
            self._beside[channel] = MeshLinks(self._group, channel)
        return self._beside[channel]

    def _receive(self, rank: int, target: Tensor) -> Tensor:
        self._group.result(self.begin_receive(rank, target))
        return target

    def _number(self, sender: int, receiver: int) -> int:
        # Both ends count the messages from one to the other, so each has a number of its own, from 1.
        count = self._messages.get((sender, receiver), 0)
        self._messages[sender, receiver] = count + 1
        number = (count * self.workers + sender) * self.workers + receiver
        return number * len(_URGENCIES) + self._channel + 1
