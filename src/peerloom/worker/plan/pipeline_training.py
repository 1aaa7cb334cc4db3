"""What a worker keeps of a job whose model is divided: task, data, blueprint, and its stage of a generation.

In a pipeline the stage is what it computes; of a model in shards, what it holds. Where layers are cut it has
a piece of each of its stage's.
"""

from collections.abc import Callable, Sequence
from pathlib import Path

import torch
from torch import Tensor, nn

from peerloom.errors import DataLossError, InvalidArgumentError
from peerloom.kit.logs import get_logger
from peerloom.kit.parallel_plan import ParallelPlan, micro_batch_sizes, parse_plan
from peerloom.v1.trainer_pb2 import HeldState, JobSpec, ModelStage
from peerloom.worker.plan.blueprint import PipelineBlueprint, check_groups, draw, indexed_data, without_values
from peerloom.worker.plan.chain import chain_of
from peerloom.worker.plan.model_piece import ModelPiece, cut_alike
from peerloom.worker.plan.own_past import OwnPast
from peerloom.worker.plan.piece_survey import PieceSurvey, check_by_numbers, exchange_s, survey_pieces
from peerloom.worker.plan.shard_units import units_of
from peerloom.worker.plan.sharded_model import ShardedModel
from peerloom.worker.plan.slot_memory import free_bytes, give_back_large, is_tight, used_bytes
from peerloom.worker.plan.stage_change import ChangeLayout
from peerloom.worker.plan.stage_model import StageModel, moved_layers, without_memory
from peerloom.worker.plan.stage_shadow import Shadow, with_empty_tensors
from peerloom.worker.plan.tensor_file import read_tensors
from peerloom.worker.plan.undrawn_model import Undrawn
from peerloom.worker.plan.whole_state import WHOLE, StatePieces, part_of
from peerloom.worker.result import PASSES
from peerloom.worker.schedule import Schedule
from peerloom.worker.speed import slot_gflops
from peerloom.worker.task import Task
from peerloom.worker.training_figures import TrainingFigures
from peerloom.worker.training_state import TrainingState
from peerloom.worker.updating.precision import FP16
from peerloom.worker.updating.task_updater import updater_of

_LONGEST_NAME = 128
_log = get_logger()


class PipelineTraining:
    """A job's training as one worker of a divided model sees it; after `enter` it has a stage and its state.

    `shards` are the units of a model in shards, with others' too; `gflops_of` measures the slot's speed on a
    device, in 1e9 operations a second.

    Raises InvalidArgumentError for a task that can't be trained so.
    """

    stage: int
    stage_model: StageModel
    state: TrainingState
    shards: ShardedModel

    def __init__(
        self,
        task: Task,
        spec: JobSpec,
        device: torch.device,
        gflops_of: Callable[[torch.device], float] = slot_gflops,
    ) -> None:
        self.task = task
        self.plan: ParallelPlan = parse_plan("plan", spec.plan)
        self.device = device
        self.seed: int = spec.seed
        # A stage's time would say as much of its layers as of the slot.
        is_fixed = bool(self.plan.starts)
        self.speed_gflops = 0.0 if is_fixed or self.plan.is_sharded else gflops_of(device)
        self.free_bytes, self.used_bytes = (0, 0) if is_fixed else (free_bytes(device), used_bytes())
        self._learning_rate: float = spec.learning_rate
        check_task(task)
        self.train, self.test = indexed_data(task)
        self._even: PipelineBlueprint = draw(task, self.train, self.plan, spec.learning_rate)
        self.blueprint = self._even
        self._survey = survey_pieces(task, self.train, self.plan) if self.plan.pieces > 1 else PieceSurvey({})
        self.piece: ModelPiece | None = None
        self.least_samples = self.blueprint.least_samples
        if self.least_samples > 1:
            _log.warning("normalised_by_micro_batch", micro_batches=self.plan.micro_batches)
        self.schedule = Schedule(len(self.train), spec.batch_size, spec.epochs, spec.seed)
        self.figures = TrainingFigures()
        self.own_past: OwnPast | None = None
        self.shadows: dict[int, Shadow] = {}  # of other stages' states, by stage
        self._order: tuple[int, Tensor] | None = None

    def enter(
        self,
        stage: int,
        shares: Sequence[int] = (),
        rooms: Sequence[int] = (),
        *,
        starts: Sequence[int] = (),
        checkpoint: Path | None = None,
        initial: Path | None = None,
    ) -> None:
        """Makes the stage, with the parameters of the seed or of an `initial` model, or a checkpoint's state.

        `shares` and `rooms` say how the model is divided (`PipelineBlueprint.cut`), or `starts` where its
        stages begin: then its state comes later; it is cut evenly where layers with a tensor in common would
        come apart.
        What was kept of earlier generations is dropped. Raises DataLossError for a file of another model,
        InvalidArgumentError for an optimiser that a stage can't have.
        """
        self.own_past, self.shadows = None, {}
        try:
            of_layers = starts[:: self.plan.pieces]
            self.blueprint = self._even.cut_at(of_layers) if starts else self._even.cut(shares, rooms)
        except InvalidArgumentError as error:  # the same on all workers
            _log.warning("cut_evenly", reason=error.message)
            self.blueprint = self._even
        # Of a model in shards each layer comes and goes in several threads, and each would keep it.
        if self.plan.is_sharded or is_tight(self.blueprint.parameters(stage) // self.plan.pieces):
            give_back_large()
        names = self.blueprint.names(stage)
        comes = bool(starts) or checkpoint is not None or initial is not None
        ranks = self.plan.ranks
        self.piece = ModelPiece(self._survey.cuts, ranks, stage) if ranks.pieces > 1 else None
        self.stage, self.stage_model = stage, self._build(stage, names, comes)
        if self.piece is not None:
            self.piece.hold(self.stage_model)
        total = self.schedule.total_batches
        updater = updater_of(self.task, self.stage_model, self._learning_rate, total)
        if self.piece is not None:
            check_by_numbers(updater.optimisers, self.task)
        groups = [group["params"] for group in updater.state()[0]["groups"]]
        check_groups(self.blueprint, groups, stage, self.task)
        self.state = TrainingState(self.stage_model, updater)
        if checkpoint is not None:
            self.state.take(part_of(checkpoint, names, self.pieces))
        elif initial is not None:
            self._load(initial, names)
        self.state.reopen_epoch(self.schedule.steps_per_epoch)

    @property
    def pieces(self) -> StatePieces:
        """Of the model's tensors that are cut, those here."""
        return WHOLE if self.piece is None else self.piece.state

    @property
    def sample_operations(self) -> float:
        """What the stage's worker computes of a sample, forward and back; 0 where that can't be told."""
        first, end = self.blueprint.bounds(self.stage)
        return PASSES * sum(self.blueprint.flops[first:end]) / self.plan.pieces

    def stay(self, step: int) -> None:
        """Goes on with its own stage from a step of `held`."""
        assert self.own_past is not None, "a worker that is asked to stay said that it has the step"
        self.own_past.go_to(step)
        self.state.reopen_epoch(self.schedule.steps_per_epoch)

    def begin_past(self) -> None:
        """From now on the stage's own state of one step ago is kept."""
        self.own_past = OwnPast(self.state, ChangeLayout(self.stage_model).buffers)

    def empty_shadow(self, stage: int) -> Shadow:
        """A shadow of a stage's state, which lacks the state itself."""
        names = self.blueprint.names(stage)
        formed = without_values(self.task)
        if self.piece is not None:
            formed = cut_alike(formed, self.plan.ranks, stage)
        whole = with_empty_tensors(formed, names)
        model = StageModel(whole, names, [], [])
        updater = updater_of(self.task, model, self._learning_rate, self.schedule.total_batches)
        return Shadow(stage, model, updater)

    def held(self) -> list[HeldState]:
        """The states of stages that it can go on with, or give; none where all go back to files."""
        if self.own_past is None:
            return []
        steps = {self.stage: self.own_past.steps()}
        steps |= {stage: shadow.steps() for stage, shadow in self.shadows.items()}
        return [HeldState(stage=stage, step=step) for stage, each in steps.items() for step in each]

    def described(self, rank: int) -> ModelStage:
        """The stage of a rank, its own, for the trainer."""
        first, end = self.blueprint.bounds(self.stage)
        layers = self.blueprint.layers
        return ModelStage(
            number=self.stage,
            first_layer=first,
            end_layer=end,
            first_name=layers[first].name[:_LONGEST_NAME],
            last_name=layers[end - 1].name[:_LONGEST_NAME],
            parameters=sum(each.numel() for each in self.stage_model.parameters() if each.requires_grad),
            piece=self.plan.ranks.piece_of(self.stage),
            pieces=self.plan.pieces,
            exchange_s=self._exchange_s(),
            compute_s=self._compute_s(),
            workers=self.plan.ranks.widths[self.stage],
            turn=self.plan.ranks.turn_of(rank),
        )

    def _exchange_s(self) -> float:
        """Of a step, of what its exchanges took when the generation began; 0: not known, or none."""
        if self.piece is None or not self._survey.exchanged:
            return 0.0
        first, end = self.blueprint.bounds(self.stage)
        sizes = micro_batch_sizes(self.schedule.batch_size, self.plan.micro_batches, self.least_samples)
        return exchange_s(self._survey.exchanged[first:end], sizes, self.piece.pace)

    def _compute_s(self) -> float:
        if self.piece is None or not self.speed_gflops:
            return 0.0
        return self.sample_operations * self.schedule.batch_size / self.speed_gflops / 1e9

    def batch_of(self, step: int) -> Tensor:
        """The samples of a step, from 0: int64 [n]."""
        epoch = self.schedule.epoch_of(step)
        if self._order is None or self._order[0] != epoch:
            self._order = (epoch, self.schedule.order(epoch))
        first, end = self.schedule.bounds(step)
        return self._order[1][first:end]

    def _build(self, stage: int, names: frozenset[str], comes: bool) -> StageModel:
        whole = self._made(names, comes)
        first, end = self.blueprint.bounds(stage)
        if self.plan.is_sharded:
            first, end = 0, len(self.blueprint.layers)
            units = units_of(self.blueprint, without_values(self.task))
            self.shards = ShardedModel(whole, units, stage, self.device)
        evaluated = chain_of(whole.eval())[0][first:end]
        trained = chain_of(whole.train())[0][first:end]
        for layers in (evaluated, trained):
            moved_layers(layers, self.device)
        if self.plan.is_sharded:
            self.shards.release_all()
        return StageModel(whole, names, trained, evaluated)

    def _made(self, names: frozenset[str], comes: bool) -> nn.Module:
        """The model with the tensors of these names; where its state `comes` from elsewhere, not drawn."""
        undrawn = self._undrawn()
        if undrawn and (undrawn.can_be_drawn or (comes and undrawn.is_all_state)):
            without_memory(undrawn.model, names)
            takers = {} if self.piece is None else self.piece.cut(undrawn.model)
            if not comes:
                undrawn.draw(self.seed, names, takers)
            return undrawn.model
        # It is all here for a moment: nobody else knows in which order it is drawn.
        torch.manual_seed(self.seed)
        whole = self.task.model()
        without_memory(whole, names)
        if self.piece is not None:
            self.piece.cut_whole(whole)
        return whole

    def _undrawn(self) -> Undrawn | None:
        try:
            return Undrawn(self.task.model)
        except Exception as error:  # the user's constructor may rely on what it has filled
            _log.info("model_built_whole", reason=f"{type(error).__name__}: {error}")
            return None

    def _load(self, path: Path, names: frozenset[str]) -> None:
        try:
            self.stage_model.load_state_dict(read_tensors(path, names.__contains__, self.pieces.of))
        except (OSError, KeyError, ValueError, TypeError, OverflowError, RuntimeError) as error:
            raise DataLossError(f"the initial model doesn't fit the task's model: {error}") from error


def check_task(task: Task) -> None:
    """Raises InvalidArgumentError for a task that no pipeline can train."""
    if task.autocast == FP16:
        raise InvalidArgumentError(
            f"{type(task).__name__}.autocast is 'fp16', but the job's plan divides the model, and no part of "
            "it knows whether another one's gradients overflow. Use 'bf16', or train with plan data.",
            reason="FP16_IN_PIPELINE",
        )
