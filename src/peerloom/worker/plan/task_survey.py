"""What a job with plan "auto" wants to know of its task and a slot, before a worker holds a model."""

from collections.abc import Sequence

import torch

from peerloom.errors import PeerloomError
from peerloom.kit.parallel_plan import parse_plan
from peerloom.kit.plan_model.model_layers import MOST_PLANNED_LAYERS
from peerloom.v1.trainer_pb2 import JobSpec, ModelPart, WorkerPrepared
from peerloom.worker.plan.blueprint import PipelineBlueprint, check_groups, draw, indexed_data, without_values
from peerloom.worker.plan.pipeline_training import check_task
from peerloom.worker.plan.slot_memory import free_bytes, used_bytes
from peerloom.worker.plan.stage_model import StageModel
from peerloom.worker.plan.task_layers import described_layers
from peerloom.worker.speed import slot_gflops
from peerloom.worker.task import Task, load_batch, load_data
from peerloom.worker.updating.task_updater import updater_of

_LEAST_PLAN = "pipeline=2"  # a model that can't be cut in two can't be cut
_LONGEST_REASON = 400


def survey(task: Task, spec: JobSpec, device: torch.device) -> WorkerPrepared:
    """What the trainer plans by. Raises InvalidArgumentError for data that no training could take.

    It bears no rounds of local steps: under another plan it may become a pipeline, which has none.
    """
    train, _ = load_data(task)
    parts, why_whole = _parts_of(task, spec)
    return WorkerPrepared(
        training_samples=len(train),
        epochs=spec.epochs,
        batch_size=spec.batch_size,
        learning_rate=spec.learning_rate,
        speed_gflops=slot_gflops(device),
        parts=parts,
        free_bytes=free_bytes(device),
        used_bytes=used_bytes(),
        why_whole=why_whole[:_LONGEST_REASON],
    )


def _parts_of(task: Task, spec: JobSpec) -> tuple[list[ModelPart], str]:
    """Between what the model can be cut; one part where it can't be, and why."""
    try:
        check_task(task)
        train, _ = indexed_data(task)
        blueprint = draw(task, train, parse_plan("plan", _LEAST_PLAN), spec.learning_rate)
        _check_division(task, blueprint, spec)
        inputs, _ = load_batch(task, train, torch.zeros(1, dtype=torch.int64))
        layers = described_layers(task, inputs)
    except PeerloomError as error:
        return [_whole_part(task)], error.message
    starts = cuttable_starts([int(each["parameters"]) for each in layers], list(blueprint.places.values()))
    ends = [*starts[1:], len(layers)]
    parts = [_part(first, layers[first:end]) for first, end in zip(starts, ends, strict=True)]
    if len(parts) > MOST_PLANNED_LAYERS:
        return [_part(0, layers)], f"it has {len(parts)} parts, and {MOST_PLANNED_LAYERS} are the most"
    return parts, ""


def cuttable_starts(parameters: Sequence[int], places: Sequence[tuple[int, ...]]) -> list[int]:
    """Layers, from 0, before which a model can be cut: what has nothing to train goes with what it follows.

    `places` are the layers of each tensor; those that share one stay together.
    """
    trained = [layer for layer, count in enumerate(parameters) if count]
    joined = {
        layer for shared in places for layer in range(min(shared, default=0) + 1, max(shared, default=0) + 1)
    }
    return [0, *(layer for layer in trained[1:] if layer not in joined)]


def _part(first: int, layers: Sequence[dict[str, str | float]]) -> ModelPart:
    def total(key: str) -> float:
        return sum(float(each[key]) for each in layers)

    return ModelPart(
        first_layer=first,
        end_layer=first + len(layers),
        parameters=int(total("parameters")),
        forward_operations=total("forward_operations"),
        output_bytes=float(layers[-1]["output_bytes"]),
        kept_bytes=total("kept_bytes"),
        is_narrow=any(each["is_narrow"] for each in layers),
        is_tied=any(each["is_tied"] for each in layers),
    )


def _whole_part(task: Task) -> ModelPart:
    """A model that can't be cut: what is known without running it."""
    model = without_values(task)
    return ModelPart(end_layer=1, parameters=sum(p.numel() for p in model.parameters() if p.requires_grad))


def _check_division(task: Task, blueprint: PipelineBlueprint, spec: JobSpec) -> None:
    """Raises InvalidArgumentError for an optimiser that can't be divided as the model is."""
    for stage in range(len(blueprint.starts)):
        model = StageModel(without_values(task), blueprint.names(stage), [], [])
        groups = updater_of(task, model, spec.learning_rate, 1).state()[0]["groups"]
        check_groups(blueprint, [group["params"] for group in groups], stage, task)
