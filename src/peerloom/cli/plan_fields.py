"""What `jobs show` tells of a plan that the trainer chose: why, and its step as predicted and measured."""

from collections import Counter

from peerloom.cli.units import human_share
from peerloom.client.types import Job, PredictedStage
from peerloom.kit.printable import Column
from peerloom.kit.quantity_texts import plural, shown_bytes, shown_s

_DIVIDED = ("pipeline", "sharded")


def is_divided(job: Job) -> bool:
    """Whether the model is cut now."""
    return (job.plan.plan if job.plan is not None else job.spec.plan).startswith(_DIVIDED)


def plan_fields(job: Job) -> list[tuple[str, str]]:
    """Nothing for a job whose plan is its user's."""
    if job.plan is None:
        return []
    taken = job.plan
    changed = f" (changed {plural(taken.changes, 'time')})" if taken.changes else ""
    fields = [("taken", taken.plan + changed), ("as", taken.reason)]
    if taken.predicted is not None:
        measured = "not measured yet"
        if taken.measured_step_s is not None:
            measured = f"{shown_s(taken.measured_step_s)} measured"
        fields.append(("a step", f"{shown_s(taken.predicted.step_s)} predicted, {measured}"))
        fields.append(("binds", taken.predicted.binds))
    return fields


def _nodes_of(stage: PredictedStage) -> str:
    counted = Counter(stage.nodes)
    return ", ".join(name if slots == 1 else f"{name} ({slots} slots)" for name, slots in counted.items())


PREDICTED_COLUMNS: tuple[Column, ...] = (
    Column("PREDICTED", lambda stage: f"layers {stage.first_layer} to {stage.last_layer}"),
    Column("ON", _nodes_of),
    Column("COMPUTES", lambda stage: shown_s(stage.computing_s), right=True),
    Column("IDLE", lambda stage: human_share(stage.idle_ratio), right=True),
    Column("MEMORY", lambda stage: f"{shown_bytes(stage.needed_bytes)} of {shown_bytes(stage.memory_bytes)}"),
)
