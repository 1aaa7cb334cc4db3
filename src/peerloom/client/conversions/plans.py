"""Plans that a job's trainer chose, and what workers hold by them."""

from peerloom.client.types import ModelStage, PlanInUse, PredictedPlan, PredictedStage, StageShadow
from peerloom.v1 import trainer_pb2


def plan_of(message: trainer_pb2.JobPlan) -> PlanInUse:
    """A JobPlan message as a value."""
    predicted = predicted_of(message.predicted) if message.HasField("predicted") else None
    measured_step_s = message.measured_step_s or None
    return PlanInUse(message.plan, message.reason, predicted, measured_step_s, message.changes)


def predicted_of(message: trainer_pb2.PlanPrediction) -> PredictedPlan:
    """A PlanPrediction message as a value."""
    stages = tuple(
        PredictedStage(
            first_layer=stage.first_layer,
            last_layer=stage.last_layer,
            nodes=tuple(stage.nodes),
            computing_s=stage.computing_s,
            idle_ratio=stage.idle_ratio,
            needed_bytes=stage.needed_bytes,
            memory_bytes=stage.memory_bytes,
        )
        for stage in message.stages
    )
    return PredictedPlan(message.step_s, message.samples_per_s, message.binds, stages)


def stage_of(message: trainer_pb2.ModelStage) -> ModelStage:
    """A ModelStage message as a value."""
    layers = (message.first_layer, message.end_layer, message.first_name, message.last_name)
    turn, piece = (message.workers or 1, message.turn), (message.pieces or 1, message.piece)
    exchanges = (message.exchange_s, message.compute_s)
    return ModelStage(message.number, *layers, message.parameters, *turn, *piece, *exchanges)


def shadow_of(message: trainer_pb2.StageShadow) -> StageShadow:
    """A StageShadow message as a value."""
    return StageShadow(message.stage, message.step, message.size_bytes, message.why_not)
