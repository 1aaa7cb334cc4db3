"""Whether a task's declaration of raw inputs is true of its data and its model, before these are trained."""

import torch
from torch import Tensor, nn

from peerloom.errors import InvalidArgumentError
from peerloom.kit.raw_input import RawInput
from peerloom.worker.batches import form_of, logits_of
from peerloom.worker.task import Samples, Split, Task, load_batch


@torch.no_grad()
def check_declaration(task: Task, train: Samples, model: nn.Module, device: torch.device) -> None:
    """Raises InvalidArgumentError where samples, tensors or labels aren't as `task.raw_input` says."""
    raw, name = task.raw_input, f"{type(task).__name__}.raw_input"
    if raw is None:
        return
    if not isinstance(raw, RawInput):
        raise InvalidArgumentError.of_field(name, type(raw).__name__, "a peerloom.RawInput")
    raw.check(name)
    if isinstance(train, Split) and isinstance(train.inputs, Tensor):
        _check_samples(train.inputs, raw, name)
    inputs, _ = load_batch(task, train, torch.zeros(1, dtype=torch.int64))
    expected = f"{raw.tensor_dtype}{list(raw.shape)}"
    if not isinstance(inputs, Tensor):
        limit = f"None: it declares one tensor, and batch() gave {form_of(inputs)}"
        raise InvalidArgumentError.of_field(name, f"for {expected}", limit)
    found = f"{str(inputs.dtype).removeprefix('torch.')}{list(inputs.shape[1:])}"
    if found != expected:
        raise InvalidArgumentError.of_field(name, f"for {expected}", f"for {found}, which batch() gave")
    if raw.labels:
        _check_labels(model, inputs.to(device), raw, name)


def _check_samples(inputs: Tensor, raw: RawInput, name: str) -> None:
    expected, found = f"{raw.dtype}{list(raw.shape)}", str(inputs.dtype).removeprefix("torch.")
    if f"{found}{list(inputs.shape[1:])}" != expected:
        limit = f"for {found}{list(inputs.shape[1:])}, which data() gave"
        raise InvalidArgumentError.of_field(name, f"for {expected}", limit)
    low, high = (float(one) for one in inputs.aminmax()) if inputs.numel() else (raw.low, raw.high)
    if not raw.low <= low <= high <= raw.high:
        limit = f"from {low:g} to {high:g}, which data() gave"
        raise InvalidArgumentError.of_field(name, f"from {raw.low:g} to {raw.high:g}", limit)


def _check_labels(model: nn.Module, inputs: Tensor, raw: RawInput, name: str) -> None:
    was_training = model.training
    # The training's own chance stays untouched.
    with torch.random.fork_rng(devices=[]):
        outputs = logits_of(model.eval()(inputs))
    model.train(was_training)
    if outputs.shape[1:] != (len(raw.labels),):
        limit = f"one for each of the model's outputs {list(outputs.shape[1:])}"
        raise InvalidArgumentError.of_field(f"{name}.labels", f"{len(raw.labels)} labels", limit)
