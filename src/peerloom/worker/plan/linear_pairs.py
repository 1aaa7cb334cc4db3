"""Pairs of linear layers between which each number is computed by itself, found by tracing a module."""

from collections.abc import Iterator
from typing import Any

import torch
from torch import fx, nn
from torch.nn import functional

_MODULES = (
    *(nn.ReLU, nn.GELU, nn.SiLU, nn.Tanh, nn.Sigmoid, nn.ELU, nn.LeakyReLU, nn.Hardswish, nn.Mish),
    *(nn.Softplus, nn.Identity, nn.ReLU6, nn.SELU, nn.CELU, nn.Hardtanh, nn.LogSigmoid),
)
_FUNCTIONS = (
    *(functional.relu, functional.gelu, functional.silu, functional.tanh, functional.sigmoid),
    *(functional.elu, functional.leaky_relu, functional.hardswish, functional.mish, functional.softplus),
    *(torch.relu, torch.tanh, torch.sigmoid),
)
_METHODS = ("relu", "tanh", "sigmoid", "mul", "add")
_BOTH = {"mul", "add"}  # of two values that are divided alike


def is_by_numbers(what: Any) -> bool:
    """Whether a module or a function makes each number of one other."""
    if isinstance(what, nn.Dropout):
        return what.p == 0  # else it would draw the same for all pieces
    return type(what) in _MODULES if isinstance(what, nn.Module) else what in _FUNCTIONS


def pairs_in(module: nn.Module) -> Iterator[tuple[tuple[str, ...], str]]:
    """The linear layers of a module that can be cut together: the names of those that enter, and the last.

    Only its own members are looked at, and those of a plain Sequential among them. What can't be traced has
    none.
    """
    linears = _linears(module, "")
    if len(linears) < 2:
        return
    try:
        nodes = list(_OwnTracer().trace(module).nodes)
    except Exception:  # tracing runs the user's code, which may raise anything
        return
    calls = [module.get_submodule(str(node.target)) for node in nodes if node.op == "call_module"]
    apart: dict[fx.Node, frozenset[fx.Node]] = {}  # of each value that stays divided, whence it comes
    within: dict[fx.Node, frozenset[fx.Node]] = {}  # and by what way
    for node in nodes:
        is_linear = node.op == "call_module" and calls.count(linears.get(str(node.target), module)) == 1
        if is_linear and len(node.all_input_nodes) == 1 and node.all_input_nodes[0] in apart:
            came = node.all_input_nodes[0]
            if all(set(each.users) <= within[came] | {node} for each in within[came]):
                yield tuple(sorted(str(each.target) for each in apart[came])), str(node.target)
                continue
        if is_linear:
            apart[node], within[node] = frozenset({node}), frozenset({node})
        elif (parts := _parts(module, node)) and all(part in apart for part in parts):
            origins = frozenset[fx.Node]().union(*(apart[part] for part in parts))
            if len({linears[str(each.target)].out_features for each in origins}) == 1:
                apart[node] = origins
                within[node] = frozenset({node}).union(*(within[part] for part in parts))


def _linears(module: nn.Module, prefix: str) -> dict[str, nn.Linear]:
    found: dict[str, nn.Linear] = {}
    for name, each in module.named_children():
        if type(each) is nn.Linear:
            found[f"{prefix}{name}"] = each
        elif type(each) is nn.Sequential:
            found |= _linears(each, f"{prefix}{name}.")
    return found


def _parts(module: nn.Module, node: fx.Node) -> list[fx.Node]:
    """The values of which a node makes another, number by number; empty where it does something else."""
    given: list[fx.Node] = list(node.all_input_nodes)
    if node.op == "call_module":
        return given if len(given) == 1 and is_by_numbers(module.get_submodule(str(node.target))) else []
    name = getattr(node.target, "__name__", str(node.target))
    if node.op == "call_function" and node.target in _FUNCTIONS and len(given) == 1:
        return given
    is_plain = node.op in ("call_function", "call_method") and name in _METHODS
    wanted = 2 if name in _BOTH else 1
    return given if is_plain and len(given) == len(node.args) == wanted else []


class _OwnTracer(fx.Tracer):
    """All members of the module but a Sequential are leaves: what they do within is their own."""

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        return type(m) is not nn.Sequential
