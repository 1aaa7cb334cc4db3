"""A model as a chain of layers, each with one input and one output, between which it can be cut.

Three kinds of models are known. One that makes text token by token offers `incremental_layers()`. A
`Sequential` is the chain of its members. Of any other, torch.fx traces the graph, and the chain is cut
wherever a single tensor is all that the rest needs: a residual block becomes one layer. What can't be traced
is one layer. Split inference and pipelines that train cut a model in the same places.
"""

from dataclasses import dataclass
from typing import Protocol, TypeGuard, runtime_checkable

from torch import fx, nn


@runtime_checkable
class IncrementalModel(Protocol):
    """A model of sequences: its layers have `step(x, cache) -> (y, cache)`, the cache None at first."""

    context: int

    def incremental_layers(self) -> list[nn.Module]: ...


@dataclass(frozen=True)
class Layer:
    """One link of the chain: its name, and what computes it."""

    name: str
    module: nn.Module

    @property
    def parameter_bytes(self) -> int:
        """Bytes of its parameters and buffers."""
        tensors = [*self.module.parameters(), *self.module.buffers()]
        return sum(tensor.numel() * tensor.element_size() for tensor in tensors)


def layers_of(model: nn.Module) -> list[Layer]:
    """The model's chain of layers, at least one; they share its parameters."""
    return chain_of(model)[0]


def chain_of(model: nn.Module) -> tuple[list[Layer], str]:
    """The model's chain of layers, and where that is a single one, why it has no more."""
    whole = [Layer("model", model)]
    if isinstance(model, IncrementalModel):
        return [Layer(str(n), layer) for n, layer in enumerate(model.incremental_layers())], ""
    if _is_plain_sequential(model):
        return _members(model, "") or whole, "it is a Sequential of one module"
    name = type(model).__name__
    try:
        traced = fx.symbolic_trace(model)
    except Exception as error:
        # Tracing runs the user's code, which may raise anything; an untraceable model is still one layer.
        return whole, f"torch.fx can't trace {name}: {type(error).__name__}: {error}"
    why = f"in the graph of {name} no tensor is all that the rest needs, or it takes or gives several"
    return _segments(traced) or whole, why


def _is_plain_sequential(module: nn.Module) -> TypeGuard[nn.Sequential]:
    # A class of the user's may call its members in another way.
    return isinstance(module, nn.Sequential) and type(module).forward is nn.Sequential.forward


def _members(model: nn.Sequential, prefix: str) -> list[Layer]:
    layers: list[Layer] = []
    for name, member in model._modules.items():  # not `named_children`: a module may be there twice
        assert member is not None, "a Sequential calls all of its members"
        if _is_plain_sequential(member) and len(member):
            layers += _members(member, f"{prefix}{name}.")
        else:
            layers.append(Layer(f"{prefix}{name}", member))
    return layers


def _segments(traced: fx.GraphModule) -> list[Layer]:
    nodes = [node for node in traced.graph.nodes if node.op != "output"]
    inputs = [node for node in nodes if node.op == "placeholder"]
    output = next(node for node in traced.graph.nodes if node.op == "output").args[0]
    if len(inputs) != 1 or not isinstance(output, fx.Node):
        return []
    # Parameters and constants read in the graph belong to whoever uses them.
    body = [node for node in nodes if node.op not in ("placeholder", "get_attr")]
    layers, entry, part = [], inputs[0], list[fx.Node]()
    for index, node in enumerate(body):
        part.append(node)
        if _is_all_that_is_needed(node, body[: index + 1], inputs[0]) or index == len(body) - 1:
            layers.append(_segment(traced, entry, part, node if index < len(body) - 1 else output))
            entry, part = node, []
    return layers


def _is_all_that_is_needed(node: fx.Node, before: list[fx.Node], model_input: fx.Node) -> bool:
    done = set(before)
    needed = {each for each in [model_input, *before] if any(user not in done for user in each.users)}
    return needed == {node}


def _segment(traced: fx.GraphModule, entry: fx.Node, part: list[fx.Node], result: fx.Node) -> Layer:
    graph = fx.Graph()
    known: dict[fx.Node, fx.Node] = {entry: graph.placeholder("x")}

    def copied(node: fx.Node) -> fx.Node:
        if node not in known:
            known[node] = graph.node_copy(node, copied)
        return known[node]

    for node in part:
        copied(node)
    graph.output(known[result])
    return Layer(part[-1].name, fx.GraphModule(traced, graph))
