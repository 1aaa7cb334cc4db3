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
from peerloom.kit.logs import get_logger
from peerloom.worker.batches import Nest, form_of
from peerloom.worker.plan.blueprint import indexed_data, places_of, without_values
from peerloom.worker.plan.chain import Layer, chain_of
from peerloom.worker.task import Task, load_batch, load_task

STATUS: dict[type[PeerloomError], int] = {InvalidArgumentError: 2, NotFoundError: 3}  # as the command line's
_Place = tuple[int, int]  # a storage, and where in it
_log = get_logger()


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

    And whether a stage with it has to be narrow, of one worker.
    Counted by a forward pass of the training set's first sample, without memory for the model where it can
    be run so. Raises InvalidArgumentError for a model whose layers don't hand a single tensor on, and for
    data without an index.
    """
    train, _ = indexed_data(task)
    inputs, _ = load_batch(task, train, torch.zeros(1, dtype=torch.int64))
    return described_layers(task, inputs)


def described_layers(task: Task, inputs: Nest) -> list[dict[str, str | float]]:
    """As `task_layers`, of inputs that are loaded. Raises the same for a model."""
    model = without_values(task)
    if isinstance(inputs, Tensor) and all(tensor.is_meta for tensor in model.state_dict().values()):
        try:
            return _described(task, model, inputs.to("meta"))
        except InvalidArgumentError:
            raise
        except Exception as error:  # what needs values can't be run without memory
            _log.warning("layers_run_whole", reason=f"{type(error).__name__}: {error}")
    return _described(task, task.model(), inputs)


def _described(task: Task, model: nn.Module, here: Nest) -> list[dict[str, str | float]]:
    found: list[dict[str, str | float]] = []
    # A single sample has no deviation to normalise by.
    layers, _ = chain_of(model.eval())
    shared = [numbers for numbers in places_of(model, layers).values() if len(numbers) > 1]
    tied = {number for numbers in shared for number in numbers}
    for number, layer in enumerate(layers):
        if not isinstance(here, Tensor):
            what = f"Layer {number} of the model of {type(task).__name__} gets {form_of(here)}"
            raise InvalidArgumentError(
                f"{what}, and a pipeline hands a single tensor on.", reason="MODEL_NOT_DIVISIBLE"
            )
        here, described = _passed(layer, here)
        found.append({**described, "is_tied": number in tied})
    return found


def _passed(layer: Layer, entered: Tensor) -> tuple[Tensor, dict[str, str | float]]:
    kept: dict[_Place, Tensor] = {}

    def keep(tensor: Tensor) -> Tensor:
        kept[_place_of(tensor)] = tensor
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
        "is_narrow": is_narrow_layer(layer.module),
    }


def is_narrow_layer(module: nn.Module) -> bool:
    """Whether workers that take turns at it may come to differ, or can't add its gradients up.

    Buffers in its state count all: which of them forward passes change shows only where they are trained.
    """
    parameters = {name for name, _ in module.named_parameters(remove_duplicate=False)}
    is_sparse = any(getattr(each, "sparse", False) is True for each in module.modules())
    return is_sparse or not parameters.issuperset(module.state_dict())


def _bytes(kept: Iterable[Tensor], module: nn.Module) -> int:
    # Parameters are kept anyway.
    own = {_place_of(each) for each in [*module.parameters(), *module.buffers()]}
    return sum(each.nbytes for each in kept if _place_of(each) not in own)


def _place_of(tensor: Tensor) -> _Place:
    """Where it lies, also without memory: two views of the same numbers lie in one place."""
    return tensor.untyped_storage()._cdata, int(tensor.storage_offset())


if __name__ == "__main__":
    sys.exit(main())
