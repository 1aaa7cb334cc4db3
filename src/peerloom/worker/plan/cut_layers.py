"""Which layers of a model are cut in pieces that several workers compute together, and along what.

A linear layer is cut by its outputs (`columns`), and what comes out is joined; where only what takes each
number by itself lies between two of them, the first one's outputs stay apart and the second is cut by its
inputs (`rows`): one sum is all that travels. Attention is cut so by heads. An embedding is cut by the
dimensions of its vectors, or by its `vocabulary` where a linear layer has the same tensor; a convolution by
its channels. What is neither is computed by all.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypeGuard, runtime_checkable

from torch import nn

from peerloom.worker.plan.linear_pairs import is_by_numbers, pairs_in
from peerloom.worker.plan.tensor_cuts import TensorCut

COLUMNS, COLUMNS_APART, ROWS, DIMENSIONS, VOCABULARY, CHANNELS, ATTENTION = (
    "columns",
    "columns apart",
    "rows",
    "dimensions",
    "vocabulary",
    "channels",
    "attention",
)
_CONVOLUTIONS = (nn.Conv1d, nn.Conv2d, nn.Conv3d)
_WITH_TWO_LINEARS = (nn.TransformerEncoderLayer, nn.TransformerDecoderLayer)


@dataclass(frozen=True)
class DividedLinears:
    """Linear layers of a module that are divided together, by their names in it.

    Between those `entering`, with the sections of the outputs of each, and the one `leaving` each number, or
    each head, is computed by itself. `heads` names the module's attribute that counts them; "": none has to.
    """

    entering: Mapping[str, int]
    leaving: str
    heads: str = ""


@runtime_checkable
class Dividable(Protocol):
    """A module that says which of its linear layers are divided together; tracing would not find it."""

    def divided_linears(self) -> Sequence[DividedLinears]: ...


@dataclass(frozen=True)
class CutLayer:
    """How a module is cut: each of its own tensors that is. `heads` are those of a module's attribute."""

    module: nn.Module
    how: str
    cuts: dict[str, TensorCut] = field(default_factory=dict)
    heads: tuple[str, TensorCut] | None = None


def cut_layers(model: nn.Module, pieces: int) -> list[CutLayer]:
    """How a model is cut; of its tensors only forms count.

    Those of several modules stay whole, but for those of embeddings and linear layers.
    """
    taken: dict[nn.Module, CutLayer] = {}
    paths = Counter(module for _, module in model.named_modules(remove_duplicate=False))
    shared = _shared(model)
    for module in model.modules():
        for group in _together(module, pieces):
            if all(
                paths[cut.module] == 1 and cut.module not in taken and not _owned(cut.module) & shared.keys()
                for cut in group
            ):
                taken |= {cut.module: cut for cut in group}
    for module in model.modules():
        if module not in taken and (alone := _alone(module, pieces, shared)) is not None:
            taken[module] = alone
    return list(taken.values())


def cuts_by_name(model: nn.Module, layers: Sequence[CutLayer]) -> dict[str, TensorCut]:
    """The cuts of the model's state, by all names of each tensor."""
    by_id = {id(layer.module._parameters[name]): cut for layer in layers for name, cut in layer.cuts.items()}
    state = model.state_dict(keep_vars=True)
    return {name: by_id[id(tensor)] for name, tensor in state.items() if id(tensor) in by_id}


def _shared(model: nn.Module) -> dict[int, list[nn.Module]]:
    """The modules of each parameter that several have."""
    owners: dict[int, list[nn.Module]] = {}
    for module in model.modules():
        for parameter in module._parameters.values():
            if parameter is not None:
                owners.setdefault(id(parameter), []).append(module)
    return {key: found for key, found in owners.items() if len(found) > 1}


def _owned(module: nn.Module) -> set[int]:
    return {id(parameter) for parameter in module.parameters()}


def _together(module: nn.Module, pieces: int) -> Iterator[list[CutLayer]]:
    """The groups of layers that a module says, or is known, to have."""
    if isinstance(module, Dividable):
        for told in module.divided_linears():
            yield _group(module, told, pieces)
    elif type(module) is nn.MultiheadAttention:
        if _has_plain_heads(module) and module.num_heads >= pieces:
            yield _attention(module, pieces)
    elif type(module) in _WITH_TWO_LINEARS:
        if is_by_numbers(module.dropout) and is_by_numbers(module.activation):
            yield _group(module, DividedLinears({"linear1": 1}, "linear2"), pieces)
    else:
        for entering, leaving in pairs_in(module):
            yield _group(module, DividedLinears(dict.fromkeys(entering, 1), leaving), pieces)


def _group(module: nn.Module, told: DividedLinears, pieces: int) -> list[CutLayer]:
    """The cuts of a group; empty where there are fewer units than pieces."""
    leaving = module.get_submodule(told.leaving)
    given = {module.get_submodule(name): sections for name, sections in told.entering.items()}
    entering = {each: sections for each, sections in given.items() if _is_linear(each)}
    if not _is_linear(leaving) or len(entering) < len(given):
        return []
    units = int(getattr(module, told.heads)) if told.heads else leaving.in_features
    lengths = [leaving.in_features, *(each.out_features // entering[each] for each in entering)]
    if units < pieces or len(set(lengths)) > 1 or lengths[0] % units:
        return []
    out = TensorCut(tuple(leaving.weight.shape), 1, pieces, units)
    cuts = [CutLayer(leaving, ROWS, {"weight": out})]
    cuts += [
        CutLayer(each, COLUMNS_APART, _by_outputs(each, pieces, units, sections))
        for each, sections in entering.items()
    ]
    return cuts if not told.heads else [*cuts, CutLayer(module, "", {}, (told.heads, out))]


def _alone(module: nn.Module, pieces: int, shared: Mapping[int, list[nn.Module]]) -> CutLayer | None:
    weight = module._parameters.get("weight")
    if weight is None:
        return None
    owners = shared.get(id(weight), [module])
    is_tied = len(owners) > 1
    if is_tied and not all(_is_linear(each) or _is_plain_embedding(each, True) for each in owners):
        return None
    if _is_linear(module) and module.out_features >= pieces:
        return CutLayer(module, COLUMNS, _by_outputs(module, pieces, module.out_features))
    if _is_plain_embedding(module, is_tied):
        dim = 0 if is_tied else 1
        if weight.shape[dim] >= pieces:
            cut = TensorCut(tuple(weight.shape), dim, pieces, weight.shape[dim])
            return CutLayer(module, VOCABULARY if is_tied else DIMENSIONS, {"weight": cut})
    if _is_plain_convolution(module) and module.out_channels >= pieces:
        return CutLayer(module, CHANNELS, _by_outputs(module, pieces, module.out_channels))
    return None


def _is_linear(module: nn.Module) -> TypeGuard[nn.Linear]:
    # A class of the user's may compute something else.
    return type(module) is nn.Linear


def _is_plain_embedding(module: nn.Module, is_tied: bool) -> TypeGuard[nn.Embedding]:
    # By its vocabulary each piece would count other frequencies.
    is_plain = type(module) is nn.Embedding and module.max_norm is None and not module.sparse
    return is_plain and not (is_tied and module.scale_grad_by_freq)


def _is_plain_convolution(module: nn.Module) -> TypeGuard[nn.Conv1d | nn.Conv2d | nn.Conv3d]:
    return isinstance(module, _CONVOLUTIONS) and type(module) in _CONVOLUTIONS and module.groups == 1


def _by_outputs(module: nn.Module, pieces: int, units: int, sections: int = 1) -> dict[str, TensorCut]:
    """The cuts of weight and bias along their first dimension."""
    return {
        name: TensorCut(tuple(tensor.shape), 0, pieces, units, sections)
        for name, tensor in module._parameters.items()
        if tensor is not None
    }


def _has_plain_heads(module: nn.MultiheadAttention) -> bool:
    # Dropout would draw the same for the heads of all pieces.
    is_plain = module.bias_k is None and not module.add_zero_attn and not module.dropout
    return bool(module._qkv_same_embed_dim and is_plain)


def _attention(module: nn.MultiheadAttention, pieces: int) -> list[CutLayer]:
    heads = module.num_heads
    cuts = {
        name: TensorCut(tuple(tensor.shape), 0, pieces, heads, 3)
        for name in ("in_proj_weight", "in_proj_bias")
        if (tensor := module._parameters[name]) is not None
    }
    out = TensorCut(tuple(module.out_proj.weight.shape), 1, pieces, heads)
    return [
        CutLayer(module, ATTENTION, cuts, ("num_heads", out)),
        CutLayer(module.out_proj, ROWS, {"weight": out}),
    ]
