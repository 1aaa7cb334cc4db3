"""What a worker keeps of a pipeline job: task, data and blueprint, and its stage for a generation."""

from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from peerloom.errors import DataLossError, InvalidArgumentError
from peerloom.kit.logs import get_logger
from peerloom.kit.parallel_plan import ParallelPlan, parse_plan
from peerloom.v1.trainer_pb2 import JobSpec, ModelStage
from peerloom.worker.plan.blueprint import PipelineBlueprint, check_groups, draw
from peerloom.worker.plan.chain import chain_of
from peerloom.worker.plan.stage_model import StageModel, moved_layers, without_memory
from peerloom.worker.plan.whole_state import part_of
from peerloom.worker.schedule import Schedule
from peerloom.worker.sharded import Sharded
from peerloom.worker.task import Task, load_data
from peerloom.worker.training import LEAST_NORMALISED, SPEED_GAIN
from peerloom.worker.training_state import TrainingState
from peerloom.worker.updating.precision import FP16
from peerloom.worker.updating.task_updater import updater_of

_LONGEST_NAME = 128
_log = get_logger()


class PipelineTraining:
    """A job's training as one worker of a pipeline sees it; after `enter` it has a stage and its state.

    Raises InvalidArgumentError for a task that can't be trained so.
    """

    stage: int
    stage_model: StageModel
    state: TrainingState

    def __init__(self, task: Task, spec: JobSpec, device: torch.device) -> None:
        self.task = task
        self.plan: ParallelPlan = parse_plan("plan", spec.plan)
        self.device = device
        self.seed: int = spec.seed
        self._learning_rate: float = spec.learning_rate
        _check_task(task)
        train, self.test = load_data(task)
        if isinstance(train, Sharded):
            limit = "samples that have an index: those of a Sharded are trained on with plan data"
            raise InvalidArgumentError.of_field(f"{type(task).__name__}.data()", type(train).__name__, limit)
        self.train = train
        self.blueprint: PipelineBlueprint = draw(task, self.train, self.plan, spec.learning_rate)
        self.least_samples = LEAST_NORMALISED if self.blueprint.normalises else 1
        if self.blueprint.normalises:
            _log.warning("normalised_by_micro_batch", micro_batches=self.plan.micro_batches)
        self.schedule = Schedule(len(self.train), spec.batch_size, spec.epochs, spec.seed)
        self.training_s = self.compute_s = self.communication_s = 0.0
        self.steps = self.samples = self.communicated_bytes = 0
        self.compute_s_per_sample = 0.0
        self._order: tuple[int, Tensor] | None = None

    def enter(self, stage: int, checkpoint: Path | None = None, initial: Path | None = None) -> None:
        """Makes the stage, with the parameters of the seed or of an `initial` model, or a checkpoint's state.

        Raises DataLossError for a file of another model, InvalidArgumentError for an optimiser that a stage
        can't have.
        """
        names = self.blueprint.names(stage)
        self.stage, self.stage_model = stage, self._build(stage, names)
        total = self.schedule.total_batches
        updater = updater_of(self.task, self.stage_model, self._learning_rate, total)
        groups = [group["params"] for group in updater.state()[0]["groups"]]
        check_groups(self.blueprint, groups, stage, self.task)
        self.state = TrainingState(self.stage_model, updater)
        if checkpoint is not None:
            self.state.take(part_of(checkpoint, names))
        elif initial is not None:
            self._load(initial, names)
        self.state.reopen_epoch(self.schedule.steps_per_epoch)

    def described(self) -> ModelStage:
        """The stage, for the trainer."""
        first, end = self.blueprint.bounds(self.stage)
        layers = self.blueprint.layers
        return ModelStage(
            number=self.stage,
            first_layer=first,
            end_layer=end,
            first_name=layers[first].name[:_LONGEST_NAME],
            last_name=layers[end - 1].name[:_LONGEST_NAME],
            parameters=self.blueprint.parameters(self.stage),
        )

    def batch_of(self, step: int) -> Tensor:
        """The samples of a step, from 0: int64 [n]."""
        epoch = self.schedule.epoch_of(step)
        if self._order is None or self._order[0] != epoch:
            self._order = (epoch, self.schedule.order(epoch))
        first, end = self.schedule.bounds(step)
        return self._order[1][first:end]

    def note_step(self, samples: int, step_s: float, computed_s: float, sent_bytes: int) -> None:
        """Adds up a step for the result, and to the running mean of what a sample takes here."""
        self.steps += 1
        self.samples += samples
        self.training_s += step_s
        self.compute_s += computed_s
        self.communication_s += step_s - computed_s
        self.communicated_bytes += sent_bytes
        past = self.compute_s_per_sample or computed_s / samples
        self.compute_s_per_sample = past + SPEED_GAIN * (computed_s / samples - past)

    def _build(self, stage: int, names: frozenset[str]) -> StageModel:
        # The whole is here for a moment: a seed gives the parameters of a stage only with those before it.
        torch.manual_seed(self.seed)
        whole = self.task.model()
        without_memory(whole, names)
        first, end = self.blueprint.bounds(stage)
        evaluated = chain_of(whole.eval())[0][first:end]
        trained = chain_of(whole.train())[0][first:end]
        for layers in (evaluated, trained):
            moved_layers(layers, self.device)
        return StageModel(whole, names, trained, evaluated)

    def _load(self, path: Path, names: frozenset[str]) -> None:
        try:
            with safe_open(path, framework="pt") as file:
                tensors: Mapping[str, Tensor] = {
                    name: file.get_tensor(name)
                    for name in file.keys()  # noqa: SIM118  # it is no mapping
                    if name in names
                }
            self.stage_model.load_state_dict(tensors)
        except (SafetensorError, RuntimeError) as error:
            raise DataLossError(f"the initial model doesn't fit the task's model: {error}") from error


def seed_of(seed: int, step: int, stage: int) -> int:
    """Of all chance in a step of a stage: the first one's is that of a worker that holds all."""
    return hash((seed, step, stage)) & 0x7FFF_FFFF_FFFF_FFFF


def _check_task(task: Task) -> None:
    if task.autocast == FP16:
        raise InvalidArgumentError(
            f"{type(task).__name__}.autocast is 'fp16', but the job's plan is a pipeline, whose stages don't "
            "know whether another one's gradients overflow. Use 'bf16', or train with plan data.",
            reason="FP16_IN_PIPELINE",
        )
