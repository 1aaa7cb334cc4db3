"""`python -m peerloom.worker.plan.task_layers TASK [NAME=VALUE ...]`: the layers between which it is cut.

Prints them as JSON, numbered as by a pipeline that trains the task; `peerloom plan explain` takes them. A
process of its own, since it needs torch and runs the task's code.
"""

import json
import sys
from collections.abc import Iterable

import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from peerloom.errors import InvalidArgumentError, NotFoundError, PeerloomError
from peerloom.worker.batches import form_of
from peerloom.worker.plan.blueprint import indexed_data
from peerloom.worker.plan.chain import Layer, chain_of
from peerloom.worker.task import Task, load_batch, load_task

STATUS: dict[type[PeerloomError], int] = {InvalidArgumentError: 2, NotFoundError: 3}  # as the command line's


def main() -> int:
    name, *pairs = sys.argv[1:]
    try:
        task = load_task(name, dict(pair.split("=", 1) for pair in pairs))
        print(json.dumps(task_layers(task), indent=2))
    except PeerloomError as error:
        print(error.message, file=sys.stderr)
        return STATUS.get(type(error), 1)
    return 0


def task_layers(task: Task) -> list[dict[str, str | float]]:
    """Each layer's name, trained parameters, forward operations, and bytes of output and kept, of one sample.

    Measured by the forward pass of the training set's first sample. Raises InvalidArgumentError for a model
    whose layers don't hand a single tensor on, and for data without an index.
    """
    train, _ = indexed_data(task)
    here, _ = load_batch(task, train, torch.zeros(1, dtype=torch.int64))
    found: list[dict[str, str | float]] = []
    layers, _ = chain_of(task.model())
    for number, layer in enumerate(layers):
        if not isinstance(here, Tensor):
            what = f"Layer {number} of the model of {type(task).__name__} gets {form_of(here)}"
            raise InvalidArgumentError(
                f"{what}, and a pipeline hands a single tensor on.", reason="MODEL_NOT_DIVISIBLE"
            )
        here, described = _passed(layer, here)
        found.append(described)
    return found


def _passed(layer: Layer, entered: Tensor) -> tuple[Tensor, dict[str, str | float]]:
    kept: dict[int, Tensor] = {}

    def keep(tensor: Tensor) -> Tensor:
        kept[tensor.data_ptr()] = tensor
        return tensor

    entered = entered.detach()
    if entered.is_floating_point():
        entered.requires_grad_()
    hooks = torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor)
    with FlopCounterMode(display=False) as counter, hooks:
        left: Tensor = layer.module(entered)
    return left, {
        "name": layer.name,
        "parameters": sum(each.numel() for each in layer.module.parameters() if each.requires_grad),
        "forward_operations": counter.get_total_flops(),
        "output_bytes": left.nbytes if isinstance(left, Tensor) else 0,
        "kept_bytes": _bytes(kept.values(), layer.module),
    }


def _bytes(kept: Iterable[Tensor], module: nn.Module) -> int:
    # Parameters are kept anyway.
    own = {each.data_ptr() for each in [*module.parameters(), *module.buffers()]}
    return sum(each.nbytes for each in kept if each.data_ptr() not in own)


if __name__ == "__main__":
    sys.exit(main())
