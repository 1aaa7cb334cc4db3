"""What the whole model of a pipeline job is, as each worker finds it without holding it."""

from bisect import bisect
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from peerloom.errors import InvalidArgumentError
from peerloom.kit.logs import get_logger
from peerloom.kit.parallel_plan import ParallelPlan
from peerloom.worker.batches import Nest, call_model, form_of
from peerloom.worker.plan.balancing import LayerFacts, ends_of, stage_starts
from peerloom.worker.plan.chain import Layer, chain_of
from peerloom.worker.sharded import Sharded
from peerloom.worker.task import Samples, Task, load_batch, load_data
from peerloom.worker.training import least_samples
from peerloom.worker.updating.named_state import NamedOptimiser
from peerloom.worker.updating.task_updater import each_of

_TRAINED_BYTES = 12  # a gradient, and two moments of Adam's
_log = get_logger()


@dataclass(frozen=True)
class PipelineBlueprint:
    """The chain of layers, where its stages begin, and which layers hold each tensor of the model's state.

    `flops` are a forward pass's operations for one sample, by layer; 0 where they can't be told. `places`: a
    tensor that no layer has is the first one's. `groups` are the names in each of the optimiser's groups;
    `least_samples` the fewest of a micro-batch.
    """

    plan: ParallelPlan
    layers: tuple[LayerFacts, ...]
    flops: tuple[int, ...]
    places: dict[str, tuple[int, ...]]
    groups: tuple[tuple[str, ...], ...]
    least_samples: int
    starts: tuple[int, ...] = ()
    owners: dict[str, int] = field(default_factory=dict)

    def cut(
        self, shares: Sequence[int], rooms: Sequence[int] = (), why_single: str = ""
    ) -> "PipelineBlueprint":
        """The same with stages, whose costs are by `shares`, as far as `rooms` allow it (`stage_starts`).

        Raises InvalidArgumentError for a tensor that two stages would share, and as `stage_starts`.
        """
        return self.cut_at(stage_starts(self.layers, self.plan, why_single, shares, rooms))

    def cut_at(self, starts: Sequence[int]) -> "PipelineBlueprint":
        """The same with stages that begin at these layers. Raises as `cut` does for a tensor."""
        owners = {name: self._owner(name, places, starts) for name, places in self.places.items()}
        return replace(self, starts=tuple(starts), owners=owners)

    def _owner(self, name: str, places: Sequence[int], starts: Sequence[int]) -> int:
        found = sorted({bisect(starts, layer) - 1 for layer in places})
        if len(found) > 1:
            limit = (
                f"another one: {name} belongs to stages {found[0]} and {found[1]}, and workers can't share a "
                "tensor. Name starts that keep its layers together, or use data"
            )
            raise InvalidArgumentError.of_field("plan", str(self.plan), limit)
        return found[0]

    def bounds(self, stage: int) -> tuple[int, int]:
        """First and one past the last layer of a stage; those of a team have the same."""
        place = stage // self.plan.pieces
        return self.starts[place], ends_of(self.starts, len(self.layers))[place]

    def names(self, stage: int) -> frozenset[str]:
        """What a stage holds of the model's state, or of what it holds a piece."""
        place = stage // self.plan.pieces
        return frozenset(name for name, owner in self.owners.items() if owner == place)

    def parameters(self, stage: int) -> int:
        """Numbers that are trained in a stage's layers."""
        first, end = self.bounds(stage)
        return sum(layer.parameters for layer in self.layers[first:end])


def indexed_data(task: Task) -> tuple[Samples, Samples]:
    """A task's training and test set. Raises InvalidArgumentError for one without an index."""
    train, test = load_data(task)
    if isinstance(train, Sharded):
        limit = "samples that have an index: those of a Sharded are trained on with plan data"
        raise InvalidArgumentError.of_field(f"{type(task).__name__}.data()", type(train).__name__, limit)
    return train, test


def draw(task: Task, train: Samples, plan: ParallelPlan, learning_rate: float) -> PipelineBlueprint:
    """The blueprint of a task's model, cut equally for a plan; the first sample shows its inputs.

    Raises InvalidArgumentError, saying why, for a model or an optimiser that can't be divided so.
    """
    inputs, _ = load_batch(task, train, torch.zeros(1, dtype=torch.int64))
    name = type(task).__name__
    if not isinstance(inputs, Tensor):
        limit = f"data: {name} gives inputs {form_of(inputs)}, and a pipeline takes one tensor"
        raise InvalidArgumentError.of_field("plan", str(plan), limit)
    model = without_values(task)
    chain, why_single = chain_of(model)
    flops = _flops(model, chain, inputs) if next(model.parameters()).is_meta else [0] * len(chain)
    layers = tuple(_facts(layer, count, plan) for layer, count in zip(chain, flops, strict=True))
    optimisers = [
        NamedOptimiser(each, model) for each in each_of(task.optimiser(model.parameters(), learning_rate))
    ]
    groups = [group for each in optimisers for group in each.flatten()[0]["groups"]]
    whole = PipelineBlueprint(
        plan,
        layers,
        tuple(flops),
        places_of(model, chain),
        tuple(tuple(group["params"]) for group in groups),
        least_samples(model),
    )
    return whole.cut((), why_single=why_single)


def without_values(task: Task) -> nn.Module:
    """The task's model without memory for its tensors, or as it is where its constructor asks for values."""
    with torch.random.fork_rng(devices=[]):
        try:
            with torch.device("meta"):
                return task.model()
        except Exception as error:  # the user's constructor may ask for values
            _log.warning("model_built_whole", reason=f"{type(error).__name__}: {error}")
            return task.model()


def check_groups(blueprint: PipelineBlueprint, own: Sequence[Sequence[str]], stage: int, task: Task) -> None:
    """Raises InvalidArgumentError unless a stage's optimiser has its part of each group of the whole's."""
    names = blueprint.names(stage)
    expected = [[name for name in group if name in names] for group in blueprint.groups]
    if [list(group) for group in own] != expected:
        raise InvalidArgumentError(
            f"{type(task).__name__}.optimiser() divides a stage's parameters into other groups than those of "
            "the whole model. Have it make the same groups of any parameters, empty ones too, or train with "
            "plan data.",
            reason="OPTIMISER_NOT_DIVISIBLE",
        )


def _facts(layer: Layer, flops: int, plan: ParallelPlan) -> LayerFacts:
    parameters = sum(each.numel() for each in layer.module.parameters() if each.requires_grad)
    held_bytes = layer.parameter_bytes + _TRAINED_BYTES * parameters
    # In shards each worker computes all layers, and what differs is what it holds. Else an update touches
    # each parameter once a step, whatever the batch.
    cost = float(held_bytes if plan.is_sharded else flops + parameters)
    return LayerFacts(layer.name, cost, parameters, held_bytes)


@torch.no_grad()
def _flops(model: nn.Module, chain: Sequence[Layer], inputs: Tensor) -> list[int]:
    """By layer, of one sample; also tells whether the chain gives what the model gives."""
    counts, here = list[int](), inputs.to("meta")
    model.eval()
    try:
        whole: Nest = call_model(model, here)
        for layer in chain:
            here, count = _counted(layer.module, here)
            counts.append(count)
    except Exception as error:  # what needs values can't be run without memory
        _log.warning("layers_not_measured", reason=f"{type(error).__name__}: {error}")
        return [0] * len(chain)
    finally:
        model.train()
    if form_of(here) != form_of(whole):
        raise InvalidArgumentError(
            f"The layers of {type(model).__name__}, one after the other, give {form_of(here)}, and the model "
            f"gives {form_of(whole)}. Train with plan data, or give it a forward() that is the chain of its "
            "layers.",
            reason="MODEL_NOT_DIVISIBLE",
        )
    return counts


def _counted(layer: Callable[[Tensor], Tensor], inputs: Tensor) -> tuple[Tensor, int]:
    with FlopCounterMode(display=False) as counter:
        outputs = layer(inputs)
    count: int = counter.get_total_flops()
    return outputs, count


def places_of(model: nn.Module, chain: Sequence[Layer]) -> dict[str, tuple[int, ...]]:
    """The layers of each name in the model's state."""
    layers: dict[int, list[int]] = {}
    for number, layer in enumerate(chain):
        for tensor in [*layer.module.parameters(), *layer.module.buffers()]:
            layers.setdefault(id(tensor), []).append(number)
    state = model.state_dict(keep_vars=True)
    return {name: tuple(layers.get(id(tensor), (0,))) for name, tensor in state.items()}
