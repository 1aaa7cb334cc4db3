"""A script's training: as a task's, but that its losses are computed in the script's own loop."""

from collections.abc import Callable, Mapping

import torch
from torch import Tensor, nn

from peerloom.errors import InvalidArgumentError
from peerloom.kit.robust_rules import OFF
from peerloom.v1.trainer_pb2 import EpochProgress, JobSpec
from peerloom.worker.batches import form_of
from peerloom.worker.description import ModelOrigin
from peerloom.worker.elastic.samples import batch_of
from peerloom.worker.elastic.script_task import ScriptTask
from peerloom.worker.kept_tensors import KeptTensors
from peerloom.worker.model_config import config_of
from peerloom.worker.step_chance import seed_all
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
        super().__init__(task, spec, device)
        if self.sync.rounds is not None:
            limit = "without a period: a script exchanges gradients in each step"
            raise InvalidArgumentError.of_field("spec.sync", spec.sync, limit)
        self.state.registered = dict(task.loop.registered)
        self._entered = EnteredModel(self.state.model)

    @property
    def begins_alike(self) -> bool:
        return False  # a script may take its chance from wherever it likes

    @property
    def called(self) -> nn.Module:
        return self._entered

    def seed_step(self, seed: int) -> None:
        seed_all(self.device, seed)  # a script's samples and body may take chance from anywhere

    def part(self, forward: Forward, indices: Tensor, batch: int, weight: float) -> Tensor:
        share = batch_of(self.train, self.task.loop.collate, indices, self.device)
        forward(())
        return self.task.conversation.loss_of(share) * (len(indices) * weight / batch)

    def scores(self, indices: Tensor) -> Tensor:
        evaluation = self.task.loop.evaluation
        assert evaluation is not None, "it has samples to measure"
        values = evaluation.score(batch_of(self.test, evaluation.collate, indices, self.device))
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
        self.task.conversation.close()
        self.task.conversation.wait_for_end(check)

    def origin(self, name: str, arguments: Mapping[str, str]) -> ModelOrigin:
        model = self.state.model
        buffers, batch = KeptTensors(model).buffers, ("the script's batch",)
        return ModelOrigin(name, arguments, (), "", buffers, input_names=batch, config=config_of(model))


def _check_asked(spec: JobSpec) -> None:
    if spec.robust not in ("", OFF):
        limit = "'off' for a script: nobody else can compute its losses again"
        raise InvalidArgumentError.of_field("spec.robust", spec.robust, limit)
