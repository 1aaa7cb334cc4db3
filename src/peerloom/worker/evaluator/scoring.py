"""Scores a model on its task's test set, all of it in this process. The model's file is a stranger's."""

import os
from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors import safe_open

from peerloom.artifacts.bundles import is_bundle, unpack
from peerloom.errors import PeerloomError
from peerloom.kit.safetensors_file import METADATA_KEY
from peerloom.worker.batches import call_model, logits_of
from peerloom.worker.evaluation import EVALUATION_BATCH
from peerloom.worker.evaluator.evaluation_order import (
    Evaluated,
    EvaluationAnswer,
    EvaluationOrder,
    Unable,
    Unfit,
)
from peerloom.worker.model_origin import read_origin
from peerloom.worker.task import Samples, Task, load_batch, load_data, load_task, sample_scores
from peerloom.worker.tensor_types import TENSOR_TYPE_NAMES

# Of what a row of outputs spans, as far as one output may be off on another machine: sums in another order
# differ by 1e-6 to 1e-4 in float32, by 1e-3 to 1e-2 in TF32 and half precision.
ROUNDING = 0.02
SAMPLES_A_THREAD = 1000  # with fewer a further thread costs more than it brings


def score(order: EvaluationOrder) -> EvaluationAnswer:
    """Evaluates as ordered; whatever fails is an answer with its reason."""
    # Parameters that are next to nothing would make each product slow: a way to be never evaluated.
    torch.set_flush_denormal(True)
    try:
        task = load_task(order.task, _arguments(order))
        train, test = load_data(task)
        model = task.model()
    except PeerloomError as error:
        return Unable("DATA_NOT_HERE", error.message)
    if flaw := _load(order, task, model):
        return Unfit(flaw)
    threads = min(len(os.sched_getaffinity(0)), len(test) // SAMPLES_A_THREAD)
    torch.set_num_threads(max(1, threads))
    total, near_ties = _score_all(task, model, test)
    return Evaluated(task.metric_name, total / len(test), near_ties, len(train), len(test))


def near_ties(outputs: torch.Tensor) -> float:
    """In how many rows of outputs [n, ..., classes] the two largest are as near as rounding may move them.

    Each output may move by `ROUNDING` of what its row spans, so two by twice that. A row that isn't finite
    counts; of n samples with several rows each, each row counts as its part of a sample.
    """
    if outputs.dim() < 2 or outputs.shape[-1] < 2:
        return 0.0
    rows = outputs.double()
    top = rows.topk(2, dim=-1).values
    span = rows.amax(dim=-1) - rows.amin(dim=-1)
    is_near = ~(top[..., 0] - top[..., 1] > 2 * ROUNDING * span)  # NaN is near
    return float(is_near.double().flatten(1).mean(dim=1).sum()) if is_near.dim() > 1 else float(is_near.sum())


def _arguments(order: EvaluationOrder) -> Mapping[str, str]:
    arguments = dict(order.task_arguments)
    for name, given in order.inputs.items():
        path = Path(given)
        if is_bundle(path):
            unpack(path, unpacked := path.with_suffix(".unpacked"))
            path = unpacked
        arguments[name] = str(path)
    return arguments


def _load(order: EvaluationOrder, task: Task, model: torch.nn.Module) -> str:
    """Puts the file's parameters into the model; "" or why they don't fit."""
    wanted = {name: (TENSOR_TYPE_NAMES.get(t.dtype), list(t.shape)) for name, t in model.state_dict().items()}
    try:
        # The header is compared first: what fits takes no more memory than the model.
        with safe_open(order.model_path, framework="pt") as file:
            slices = {name: file.get_slice(name) for name in file.keys()}  # noqa: SIM118  # it is no mapping
            found = {name: (each.get_dtype(), list(each.get_shape())) for name, each in slices.items()}
            if flaw := _difference(wanted, found):
                return flaw
            if flaw := _misleading(order, task, file.metadata() or {}):
                return flaw
            model.load_state_dict({name: file.get_tensor(name) for name in wanted})
    except (MemoryError, OSError):  # nothing that the file says
        raise
    except BaseException as error:  # the library's own panics are no Exceptions
        return f"it can't be read as a model: {type(error).__name__}: {error}"
    return ""


def _misleading(order: EvaluationOrder, task: Task, told: Mapping[str, str]) -> str:
    """Whether nodes that answer with it would build another model, or prepare inputs in another way."""
    if METADATA_KEY not in told:
        return ""  # without an origin it answers nobody
    origin = read_origin(told, "model")
    if (origin.task, dict(origin.arguments)) != (order.task, dict(order.task_arguments)):
        return "what it says of the task and the arguments that build it isn't what the job's are"
    if origin.raw_input != task.raw_input:
        return "what it says of its raw inputs isn't what its task declares"
    return ""


def _difference(wanted: Mapping[str, object], found: Mapping[str, object]) -> str:
    if missing := sorted(wanted.keys() - found.keys()):
        return f"it has no {missing[0]!r}, which the task's model has"
    if unknown := sorted(found.keys() - wanted.keys()):
        return f"it has {unknown[0]!r}, which the task's model doesn't have"
    for name, expected in wanted.items():
        if found[name] != expected:
            return f"its {name!r} is {found[name]}, but the task's is {expected}"
    return ""


@torch.no_grad()
def _score_all(task: Task, model: torch.nn.Module, test: Samples) -> tuple[float, float]:
    model.eval()
    total = near = 0.0
    for indices in torch.split(torch.arange(len(test)), EVALUATION_BATCH):
        inputs, targets = load_batch(task, test, indices)
        outputs = call_model(model, inputs)
        total += float(sample_scores(task, outputs, targets).double().sum())
        near += near_ties(logits_of(outputs))
    return total, near
