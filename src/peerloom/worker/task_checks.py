"""Whether a task's defaults are within their limits, and its methods give one value a sample."""

from typing import TYPE_CHECKING

from torch import Tensor, nn

from peerloom.errors import InvalidArgumentError
from peerloom.kit.robust_rules import OFF
from peerloom.kit.sync_method import SyncMethod
from peerloom.worker.batches import Nest, sample_count
from peerloom.worker.updating.precision import FP16, TYPES

if TYPE_CHECKING:
    from peerloom.worker.task import Task

NAMED_UNUSED = 5


def check_defaults(task: "Task", name: str) -> None:
    """Raises InvalidArgumentError, naming the attribute, for one that is outside its limits."""
    for field, high in (("epochs", 1_000_000), ("batch_size", 16_777_216)):
        value = getattr(task, field)
        if not isinstance(value, int) or not 1 <= value <= high:
            limit = f"a whole number from 1 to {high:,}"
            raise InvalidArgumentError.of_field(f"{name}.{field}", value, limit)
    for field, rate in (("learning_rate", task.learning_rate), ("clip_norm", task.clip_norm)):
        may_be_none = field == "clip_norm"
        if rate is None and may_be_none:
            continue
        if not isinstance(rate, int | float) or not 0 < rate < float("inf"):
            limit = "a number above 0, or None" if may_be_none else "a number above 0"
            raise InvalidArgumentError.of_field(f"{name}.{field}", rate, limit)
    if task.autocast is not None and task.autocast not in TYPES:
        limit = f"None, {' or '.join(TYPES)}"
        raise InvalidArgumentError.of_field(f"{name}.autocast", task.autocast, limit)
    if task.micro_batch is not None and (not isinstance(task.micro_batch, int) or task.micro_batch < 1):
        limit = "None, or a whole number from 1"
        raise InvalidArgumentError.of_field(f"{name}.micro_batch", task.micro_batch, limit)


def check_method(task: "Task", sync: SyncMethod, robust: str) -> None:
    """Raises InvalidArgumentError for a task that the job's way to synchronise can't be used with.

    Workers that check one another must be able to compute a share again, and what a codec left out must be
    in the scale of the next step.
    """
    name = type(task).__name__
    if robust != OFF and task.autocast is not None:
        raise InvalidArgumentError(
            f"{name}.autocast is {task.autocast!r}, but the job is robust ({robust!r}). Half "
            "precision rounds differently on different machines and overflows on honest ones, which looks "
            "like a lie. Submit the job with robust 'off', or the task without autocast.",
            reason="AUTOCAST_NOT_ROBUST",
        )
    if robust != OFF and task.micro_batch is not None:
        raise InvalidArgumentError(
            f"{name}.micro_batch is {task.micro_batch}, but the job is robust ({robust!r}): a share is "
            "computed again in one piece. Submit the job with robust 'off', or the task without micro_batch.",
            reason="MICRO_BATCH_NOT_ROBUST",
        )
    if sync.has_feedback and sync.rounds is None and task.autocast == FP16:
        raise InvalidArgumentError(
            f"{name}.autocast is 'fp16', but the job's codec {sync.codec!r} adds what it left out to the "
            "next step's gradients, which may have another scale. Submit the job with another codec, or use "
            "'bf16'.",
            reason="FP16_WITH_FEEDBACK",
        )


def check_low_rank(task: "Task", model: nn.Module, sync: SyncMethod) -> None:
    """Raises InvalidArgumentError for a powersgd rank above the smaller side of each matrix of the model."""
    shapes = [one.shape for one in model.parameters() if one.requires_grad and one.dim() > 1 and one.numel()]
    sides = [min(shape[0], shape.numel() // shape[0]) for shape in shapes]
    most = max(sides, default=0)
    if sync.low_rank <= most:
        return
    found = f"smaller sides of at most {most}" if most else "no matrix at all"
    instead = f"a RANK of at most {most}" if most else "another codec"
    raise InvalidArgumentError(
        f"The job's codec is 'powersgd:{sync.low_rank}', but the model of {type(task).__name__} has "
        f"{found}: two factors of that rank would be longer than each. Submit the job with {instead}.",
        reason="RANK_ABOVE_SIDES",
    )


def check_all_used(task: "Task", model: nn.Module) -> None:
    """Raises InvalidArgumentError when a backward pass left a trained parameter without a gradient.

    The ranks' sums wait for the gradients of all, so torch's DDP could go on with none of them.
    """
    unused = [name for name, each in model.named_parameters() if each.requires_grad and each.grad is None]
    if not unused:
        return
    more = f" and {len(unused) - NAMED_UNUSED} more" if len(unused) > NAMED_UNUSED else ""
    raise InvalidArgumentError(
        f"The loss of {type(task).__name__} doesn't depend on {', '.join(unused[:NAMED_UNUSED])}{more}: with "
        "more than one worker each parameter needs a gradient in each step. Freeze unused ones by "
        "requires_grad_(False), or have the model use them.",
        reason="PARAMETERS_NOT_USED",
    )


def check_per_sample(task: "Task", method: str, values: Tensor, targets: Nest) -> Tensor:
    """The values [n] of n samples; raises InvalidArgumentError when they have another shape."""
    count = sample_count(targets, f"the targets of {type(task).__name__}")
    if isinstance(values, Tensor) and values.shape == (count,):
        return values
    found = f"a tensor of shape {list(values.shape)}" if isinstance(values, Tensor) else type(values).__name__
    raise InvalidArgumentError(
        f"{type(task).__name__}.{method}() gave {found}, but must give one "
        f"value for each of the {count} samples: use reduction='none', and average only within a sample.",
        reason="NOT_PER_SAMPLE",
    )
