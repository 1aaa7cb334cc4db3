"""A backward pass in two parts: the gradient that goes back, and later those of the weights.

Whoever computes the stage before waits for the first part alone. No product is made twice: the graph of
autograd is cut where the ways to the weights leave the way to what came in, and what arrives there is kept
until the weights have their turn. (Qi et al., Zero Bubble Pipeline Parallelism, ICLR 2024.)
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from functools import partial

import torch
from torch import Tensor, nn
from torch.autograd.graph import GradientEdge, Node, get_gradient_edge

_Arrived = Mapping[Node, tuple[Tensor | None, ...]]


def begin_backward(
    left: Tensor, gradient: Tensor, entered: Tensor, weights: Iterable[nn.Parameter]
) -> Callable[[], None]:
    """Gives `entered` its gradient, where `left` has this one; what it returns does the rest.

    That adds to the gradients of the `weights`, and is called once. A weight's sum has the same bits as by a
    whole backward pass. Where `left` doesn't depend on `entered`, or torch can't compute a part alone (of a
    reentrant checkpoint, or compiled code), all is done at once.
    """
    joints = _joints(left, entered, weights) if entered.requires_grad else None
    if joints is None:
        torch.autograd.backward([left], [gradient])
        return lambda: None
    arrived: dict[Node, tuple[Tensor | None, ...]] = {}
    nodes = {node for together, _ in joints for node in together}
    handles = [node.register_prehook(partial(arrived.__setitem__, node)) for node in nodes]
    try:
        (entered.grad,) = torch.autograd.grad([left], [entered], [gradient], retain_graph=True)
    except RuntimeError:
        # Nothing was added up yet, and what fails in any case does so again.
        torch.autograd.backward([left], [gradient])
        return lambda: None
    finally:
        for handle in handles:
            handle.remove()
    return partial(_add_up, joints, arrived)


def _add_up(joints: list[tuple[frozenset[Node], list[nn.Parameter]]], arrived: _Arrived) -> None:
    while joints:
        nodes, weights = joints.pop()
        there = [
            (GradientEdge(node, number), gradient)
            for node in nodes
            for number, gradient in enumerate(arrived[node])
            if gradient is not None
        ]
        if not there:
            continue
        # On its way to a weight used twice what comes from one joint meets another, which has had it already.
        meeting = nodes if len(nodes) > 1 else ()
        handles = [node.register_prehook(partial(_instead, arrived[node])) for node in meeting]
        edges, gradients = zip(*there, strict=True)
        try:
            torch.autograd.backward(edges, gradients, inputs=weights, retain_graph=True)
        finally:
            for handle in handles:
                handle.remove()


def _instead(arrived: tuple[Tensor | None, ...], _: tuple[Tensor | None, ...]) -> tuple[Tensor | None, ...]:
    return arrived


def _joints(
    left: Tensor, entered: Tensor, weights: Iterable[nn.Parameter]
) -> list[tuple[frozenset[Node], list[nn.Parameter]]] | None:
    """Weights together with where their ways leave those to `entered`; None where no way leads there."""
    above = _above(left)
    entry = get_gradient_edge(entered).node
    if entry not in above:
        return None
    onward = _reached(entry, above, ())[0]
    found: dict[frozenset[Node], list[nn.Parameter]] = {}
    for weight in weights:
        node = get_gradient_edge(weight).node if weight.requires_grad else None
        if node in above:
            found.setdefault(frozenset(_reached(node, above, onward)[1]), []).append(weight)
    return list(found.items())


def _above(left: Tensor) -> dict[Node, list[Node]]:
    """The nodes of the graph under `left`, each with those that pass gradients to it."""
    top = get_gradient_edge(left).node
    above: dict[Node, list[Node]] = {top: []}
    todo = [top]
    while todo:
        node = todo.pop()
        for below, _ in node.next_functions:
            if below is None:
                continue
            if below not in above:
                above[below] = []
                todo.append(below)
            above[below].append(node)
    return above


def _reached(
    start: Node, above: Mapping[Node, list[Node]], until: Collection[Node]
) -> tuple[set[Node], set[Node]]:
    """The nodes above a node, itself too, up to those of `until`; and which of these are there."""
    seen, met, todo = {start}, set[Node](), [start]
    while todo:
        for node in above[todo.pop()]:
            if node in until:
                met.add(node)
            elif node not in seen:
                seen.add(node)
                todo.append(node)
    return seen, met
