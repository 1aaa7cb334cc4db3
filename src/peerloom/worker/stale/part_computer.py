"""The thread that computes gradients of parts, one after the other, while steps are committed beside it.

It has a copy of the model, which gets the newest parameters at each part's beginning. It issues no
collectives: two threads on one group would sum wrong tensors. Chance is drawn in this thread alone.
"""

import copy
import threading
import time
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from peerloom.kit.handing_out import NOT_BEGUN, BatchPart, Row
from peerloom.worker.batches import call_model
from peerloom.worker.step_share import StepShare
from peerloom.worker.sync.local_steps import trained

if TYPE_CHECKING:
    from peerloom.worker.training import Training


class PartComputer:
    """Computes what it is handed, for one `training`; all its methods may be called beside that.

    `model` is its copy. What the task raises comes out of `row` and `wait`.
    """

    def __init__(self, training: "Training") -> None:
        self.model: nn.Module = copy.deepcopy(training.state.model)
        self.samples = 0  # that it has computed, also for nothing
        self._training = training
        self._changed = threading.Condition()
        self._version = NOT_BEGUN
        self._newest: list[Tensor] = []
        self._parts: dict[int, BatchPart] = {}
        self._indices: dict[int, Tensor] = {}
        self._gradients: dict[int, list[Tensor]] = {}
        self._under_way: BatchPart | None = None  # also if it was dropped since
        self._begun_s = 0.0  # of the one under way, or of what of it wasn't asked about yet
        self._busy_s = 0.0
        self._news = self._is_closed = False
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="part-computer", daemon=True)

    def publish(self, version: int) -> None:
        """The training's model has this version now: parts that begin from here on begin with it."""
        with self._changed:
            source = _tensors(self._training.state.model)
            if not self._newest:
                self._newest = [tensor.detach().clone() for tensor in source]
                self._thread.start()
            _copy(self._newest, source)
            self._version = version

    def hand(self, number: int, indices: Tensor) -> None:
        """The samples `indices` are the part of this number."""
        with self._changed:
            self._parts[number], self._indices[number] = BatchPart(number), indices
            self._changed.notify_all()

    def take(self, number: int) -> list[Tensor]:
        """The gradients of a part that is done, by parameter; it is gone then."""
        with self._changed:
            del self._parts[number]
            return self._gradients.pop(number)

    def drop(self, number: int | None = None) -> None:
        """Forgets a part, or all; one that is under way is computed to its end for nothing."""
        with self._changed:
            for each in list(self._parts) if number is None else [number]:
                self._parts.pop(each, None)
                self._indices.pop(each, None)
                self._gradients.pop(each, None)

    def row(self) -> Row:
        """What the others hear of it."""
        with self._changed:
            self._raise()
            self._news = False
            now = self._under_way
            # A number may have been dropped, and handed out here again.
            is_busy = now is not None and self._parts.get(now.number) is not now
            return Row(tuple(self._parts.values()), is_busy)

    def wait(self, limit_s: float) -> None:
        """Until there is something to tell, nothing to compute, or the limit has passed."""
        with self._changed:
            self._changed.wait_for(lambda: self._news or self._is_idle() or self._error is not None, limit_s)
            self._raise()

    def busy_s(self) -> float:
        """Seconds that it has computed since this was asked last."""
        with self._changed:
            now_s = time.perf_counter()
            busy_s = self._busy_s + (now_s - self._begun_s if self._under_way is not None else 0.0)
            self._busy_s, self._begun_s = 0.0, now_s
            return busy_s

    def close(self) -> None:
        """Ends the thread, after the part that it computes."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()

    def _raise(self) -> None:
        if self._error is not None:
            raise self._error

    def _is_idle(self) -> bool:
        return self._under_way is None and not self._indices

    def _run(self) -> None:
        device = self._training.device
        if device.type == "cuda":
            torch.cuda.set_device(device)
        try:
            while (begun := self._begin()) is not None:
                self._end(*begun, *self._computed(*begun))
        except BaseException as error:
            with self._changed:
                self._error = error
                self._changed.notify_all()

    def _begin(self) -> tuple[BatchPart, Tensor] | None:
        with self._changed:
            self._changed.wait_for(lambda: self._indices or self._is_closed)
            if self._is_closed:
                return None
            number = next(iter(self._indices))
            indices = self._indices.pop(number)
            _copy(_tensors(self.model), self._newest)
            part = self._parts[number] = replace(self._parts[number], version=self._version)
            self._under_way, self._begun_s = part, time.perf_counter()
            return part, indices

    def _computed(self, part: BatchPart, indices: Tensor) -> tuple[float, list[Tensor]]:
        share = StepShare(part.version, part.number, indices, len(indices))
        loss = share.walk(self._training, partial(call_model, self.model), self._training.state.updater)
        loss.backward()  # type: ignore[no-untyped-call]  # torch leaves it untyped
        gradients = [
            torch.zeros_like(each) if each.grad is None else each.grad for each in trained(self.model)
        ]
        self.model.zero_grad()
        return float(loss.detach()), gradients

    def _end(self, part: BatchPart, indices: Tensor, loss: float, gradients: list[Tensor]) -> None:
        with self._changed:
            self.samples += len(indices)
            self._busy_s += time.perf_counter() - self._begun_s
            self._under_way, self._news = None, True
            if self._parts.get(part.number) is part:
                self._parts[part.number] = replace(part, is_done=True, loss=loss)
                self._gradients[part.number] = gradients
            self._changed.notify_all()


def _tensors(model: nn.Module) -> list[Tensor]:
    return [*trained(model), *model.buffers()]


@torch.no_grad()
def _copy(targets: list[Tensor], sources: list[Tensor]) -> None:
    for target, source in zip(targets, sources, strict=True):
        target.copy_(source)
