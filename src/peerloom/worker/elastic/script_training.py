"""A script's training: as a task's, but that its losses are computed in the script's own loop."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain

import torch
from torch import Tensor, nn

from peerloom.errors import InvalidArgumentError
from peerloom.kit.robust_rules import OFF
from peerloom.v1.trainer_pb2 import EpochProgress, JobSpec
from peerloom.worker.batches import Nest, form_of, moved
from peerloom.worker.elastic.agreement import Agreement
from peerloom.worker.elastic.epoch_order import digest_of
from peerloom.worker.elastic.losses import OfferedLoss, no_loss
from peerloom.worker.elastic.read_ahead import ReadAhead, WantedPiece
from peerloom.worker.elastic.samples import together
from peerloom.worker.elastic.script_task import ScriptTask
from peerloom.worker.group.process_group import Group
from peerloom.worker.kept_tensors import KeptTensors
from peerloom.worker.model_config import config_of
from peerloom.worker.model_origin import ModelOrigin
from peerloom.worker.schedule import split_batch
from peerloom.worker.step_chance import seed_all
from peerloom.worker.step_share import share_of
from peerloom.worker.training import Forward, Training


class EnteredModel(nn.Module):
    """A living model that a synchroniser prepares for a backward pass, whatever calls it in between.

    DDP has its hooks at the parameters, so only its preparation and rank 0's buffers have to come first; the
    script then calls the model itself, as often and by whatever method it likes.
    """

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self) -> None:
        """Nothing: what comes before and after it counts."""


class ScriptTraining(Training):
    """What stays the same over the generations of a script's job.

    Raises InvalidArgumentError for what a job asks that a script can't: computing shares again, and rounds
    of local steps, which want optimisers made anew.
    """

    task: ScriptTask

    def __init__(self, task: ScriptTask, spec: JobSpec, device: torch.device) -> None:
        _check_asked(spec)
        self._order_digest = 0
        super().__init__(task, spec, device)
        if self.sync.rounds is not None:
            limit = "without a period: a script exchanges gradients in each step"
            raise InvalidArgumentError.of_field("spec.sync", spec.sync, limit)
        if self.sync.stale is not None:
            limit = "without staleness and backup: a script computes by itself, and waits for each step's sum"
            raise InvalidArgumentError.of_field("spec.sync", spec.sync, limit)
        self.state.registered = dict(task.loop.registered)
        data = task.loop.data
        self._ahead = ReadAhead(self.train, data.collate, data.loader) if data.loader is not None else None
        self._place: tuple[int, int, Sequence[int]] = (0, 0, [1])
        self._offered: OfferedLoss | None = None  # for the last piece
        self._entered = EnteredModel(self.state.model)

    @property
    def why_whole(self) -> str:
        """Its forward passes are the script's own."""
        return "a script makes its forward passes itself"

    @property
    def bears_rounds(self) -> bool:
        return False  # it exchanges gradients in each step

    @property
    def begins_alike(self) -> bool:
        return False  # a script may take its chance from wherever it likes

    @property
    def called(self) -> nn.Module:
        return self._entered

    def seed_step(self, seed: int) -> None:
        seed_all(self.device, seed)  # a script's samples and body may take chance from anywhere

    def positions(self, seed: int) -> int:
        order = self.task.loop.data.order
        return super().positions(seed) if order is None else len(order.of(0, seed))

    def order_of(self, epoch: int) -> Tensor:
        own = self.task.loop.data.order
        if own is None:
            return super().order_of(epoch)
        order = own.of(epoch, self.seed)
        if len(order) != self.schedule.samples:
            found, limit = f"{len(order)} samples", f"{self.schedule.samples}, as of the epochs before"
            raise InvalidArgumentError.of_field(f"the sampler's epoch {epoch + 1}", found, limit)
        self._order_digest = digest_of(order)
        return order

    def begin_step(self, step: int, rank: int, shares: Sequence[int]) -> None:
        self.task.watcher.reached(step)
        self._place = (step, rank, shares)

    def part(self, forward: Forward, indices: Tensor, batch: int, weight: float) -> Tensor:
        share = moved(self._read(indices), self.device)
        forward(())
        self._offered = self.task.conversation.loss_of(share)
        if self._offered is None:
            return no_loss(self.state.model)
        return self._offered.loss * (len(indices) * weight / batch)

    def announce(self, group: Group) -> None:
        stepping = self._offered.stepping if self._offered is not None else frozenset()
        self._agreement = Agreement(group, self._offered is None, stepping, self._order_digest)

    def settle(self, step: int) -> bool:
        if not self._agreement.goes_on(step):
            return False
        assert self._offered is not None, "nobody has left"
        for number, optimiser in enumerate(self.task.loop.prepared.optimisers):
            if number not in self._offered.stepping:
                optimiser.zero_grad()  # of zeros, which only the exchange needed
        return True

    def _read(self, indices: Tensor) -> Nest:
        if self._ahead is None:
            return together(self.train, self.task.loop.data.collate, indices)
        coming, samples = self._readings(), tuple(indices.tolist())
        for reading in coming:  # of this step's pieces the one at hand
            if reading.samples == samples:
                return self._ahead.read(reading, chain([reading], coming))
        raise AssertionError("a share is cut as it is foreseen")

    def _readings(self) -> Iterator[WantedPiece]:
        """What this worker reads with the shares of now, from this step on to its epoch's end."""
        step, rank, shares = self._place
        end = (self.schedule.epoch_of(step) + 1) * self.schedule.steps_per_epoch
        for upcoming in range(step, end):
            first, last = self.schedule.bounds(upcoming)
            counts = split_batch(last - first, shares, self.least_samples)
            share = share_of(self, upcoming, counts, rank)
            for number, piece in enumerate(share.pieces(self)):
                seed = (share.seed(self) + number) % 2**63
                yield WantedPiece(upcoming, seed, tuple(piece.tolist()))

    def scores(self, indices: Tensor) -> Tensor:
        evaluation = self.task.loop.evaluation
        assert evaluation is not None, "it has samples to measure"
        values = evaluation.score(moved(together(self.test, evaluation.collate, indices), self.device))
        if not isinstance(values, Tensor) or values.shape != (len(indices),):
            limit = f"one value for each of {len(indices)} samples"
            raise InvalidArgumentError.of_field("what run.evaluate's function gave", form_of(values), limit)
        return values.float()

    def enter(self, rank: int, world_size: int) -> None:
        self.task.watcher.placed(rank, world_size)

    def committed(self, counts: bool) -> Mapping[str, float]:
        return self.task.conversation.commit(counts)

    def measured(self, progress: EpochProgress) -> None:
        self.task.watcher.measured(progress.epoch, progress.loss, progress.metric)

    def finish(self, check: Callable[[], None]) -> None:
        if self._ahead is not None:
            self._ahead.close()
        self.task.conversation.close()
        self.task.conversation.wait_for_end(check)

    def origin(self, name: str, arguments: Mapping[str, str]) -> ModelOrigin:
        if self.task.loop.origin is not None:
            return self.task.loop.origin
        model = self.state.model
        buffers, batch = KeptTensors(model).buffers, ("the script's batch",)
        return ModelOrigin(name, arguments, (), "", buffers, input_names=batch, config=config_of(model))


def _check_asked(spec: JobSpec) -> None:
    if spec.robust not in ("", OFF):
        limit = "'off' for a script: nobody else can compute its losses again"
        raise InvalidArgumentError.of_field("spec.robust", spec.robust, limit)
