"""What the layers that are cut compute with one worker's pieces, and what they exchange with the others'.

A layer keeps its place, and its tensors their names: they are pieces now, and its `forward` knows it. All
workers go through the layers in the same order, each with the same inputs, so their exchanges meet.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.nn import functional

from peerloom.worker.plan.cut_layers import (
    ATTENTION,
    CHANNELS,
    COLUMNS,
    COLUMNS_APART,
    DIMENSIONS,
    ROWS,
    VOCABULARY,
    CutLayer,
)
from peerloom.worker.plan.tensor_cuts import TensorCut


class PieceExchange(Protocol):
    """How the workers that have pieces of the same layers exchange tensors; all call it alike."""

    piece: int

    def sum(self, own: Tensor) -> Tensor:
        """The sum of what each has: of the same shape, and the same bits with all."""

    def join(self, own: Tensor, dim: int, cut: TensorCut) -> Tensor:
        """The pieces of all, one after the other along `dim`, by the lengths of `cut`."""


def cut_model(layers: Sequence[CutLayer], piece: int) -> dict[int, Callable[[Tensor], object]]:
    """Puts pieces, without values, in the place of the layers' tensors.

    Gives what takes a whole tensor's values, by the `id` of that tensor, of those that have memory.
    """
    pieces: dict[int, nn.Parameter] = {}  # layers that share a parameter share it still
    takers: dict[int, Callable[[Tensor], object]] = {}
    for layer in layers:
        for name, cut in layer.cuts.items():
            whole = layer.module._parameters[name]
            assert whole is not None, "what is cut is there"
            key = id(whole)
            if key not in pieces:
                empty = whole.detach().new_empty(cut.piece_shape(piece))
                pieces[key] = nn.Parameter(empty, whole.requires_grad)
                if not empty.is_meta:
                    takers[key] = partial(_take, pieces[key], cut, piece)
            layer.module._parameters[name] = pieces[key]
        if layer.heads is not None:
            name, cut = layer.heads
            first, end = cut.unit_bounds[piece]
            setattr(layer.module, name, end - first)
    return takers


@torch.no_grad()
def _take(own: nn.Parameter, cut: TensorCut, piece: int, whole: Tensor) -> None:
    own.copy_(cut.piece(whole, piece))


def exchange_in(layers: Sequence[CutLayer], exchange: PieceExchange) -> None:
    """From now on the layers compute with their pieces, and `exchange` the rest."""
    torch.backends.mha.set_fastpath_enabled(False)  # it would read the layers' tensors by itself
    for layer in layers:
        if layer.how:
            # On the module itself: tracing and the model's own code know it as what it was.
            layer.module.forward = partial(_FORWARDS[layer.how], layer.module, exchange=exchange, layer=layer)


class _Spread(torch.autograd.Function):
    """The same for all workers; their gradients of it are added up."""

    @staticmethod
    def forward(ctx: Any, inputs: Tensor, exchange: PieceExchange) -> Tensor:
        ctx.exchange = exchange
        return inputs.view_as(inputs)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        return ctx.exchange.sum(gradient), None


class _Summed(torch.autograd.Function):
    """The sum of all workers' values; each gets the gradient of that."""

    @staticmethod
    def forward(ctx: Any, own: Tensor, exchange: PieceExchange) -> Tensor:
        return exchange.sum(own)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        return gradient, None


class _Joined(torch.autograd.Function):
    """All workers' pieces together; each gets the gradient of its own."""

    @staticmethod
    def forward(ctx: Any, own: Tensor, exchange: PieceExchange, dim: int, cut: TensorCut) -> Tensor:
        ctx.place = (dim, sum(cut.length(each) for each in range(exchange.piece)), own.shape[dim])
        return exchange.join(own, dim, cut)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None, None]:
        return gradient.narrow(*ctx.place).contiguous(), None, None, None


def _spread(inputs: Tensor, exchange: PieceExchange) -> Tensor:
    spread: Tensor = _Spread.apply(inputs, exchange)  # type: ignore[no-untyped-call]  # as torch has it
    return spread


def _summed(own: Tensor, exchange: PieceExchange) -> Tensor:
    total: Tensor = _Summed.apply(own, exchange)  # type: ignore[no-untyped-call]  # as torch has it
    return total


def _joined(own: Tensor, exchange: PieceExchange, dim: int, cut: TensorCut) -> Tensor:
    whole: Tensor = _Joined.apply(own, exchange, dim, cut)  # type: ignore[no-untyped-call]  # as torch has it
    return whole


def _columns_apart(module: nn.Linear, inputs: Tensor, *, exchange: PieceExchange, layer: CutLayer) -> Tensor:
    return functional.linear(_spread(inputs, exchange), module.weight, module.bias)


def _columns(module: nn.Linear, inputs: Tensor, *, exchange: PieceExchange, layer: CutLayer) -> Tensor:
    own = _columns_apart(module, inputs, exchange=exchange, layer=layer)
    return _joined(own, exchange, own.dim() - 1, layer.cuts["weight"])


def _rows(module: nn.Linear, inputs: Tensor, *, exchange: PieceExchange, layer: CutLayer) -> Tensor:
    total = _summed(functional.linear(inputs, module.weight), exchange)
    return total if module.bias is None else total + module.bias.to(total.dtype)


def _dimensions(module: nn.Embedding, inputs: Tensor, *, exchange: PieceExchange, layer: CutLayer) -> Tensor:
    padding, by_frequency = module.padding_idx, module.scale_grad_by_freq
    own = functional.embedding(inputs, module.weight, padding, scale_grad_by_freq=by_frequency)
    return _joined(own, exchange, own.dim() - 1, layer.cuts["weight"])


def _vocabulary(module: nn.Embedding, inputs: Tensor, *, exchange: PieceExchange, layer: CutLayer) -> Tensor:
    first, end = layer.cuts["weight"].unit_bounds[exchange.piece]
    is_own = (inputs >= first) & (inputs < end)
    padding = module.padding_idx
    own_padding = padding - first if padding is not None and first <= padding < end else None
    found = functional.embedding(
        torch.where(is_own, inputs - first, 0),
        module.weight,
        own_padding,
        scale_grad_by_freq=module.scale_grad_by_freq,
    )
    return _summed(found * is_own.unsqueeze(-1), exchange)


def _channels(module: Any, inputs: Tensor, *, exchange: PieceExchange, layer: CutLayer) -> Tensor:
    own = module._conv_forward(_spread(inputs, exchange), module.weight, module.bias)
    return _joined(own, exchange, own.dim() - module.weight.dim() + 1, layer.cuts["weight"])


def _attention(
    module: nn.MultiheadAttention,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    key_padding_mask: Tensor | None = None,
    need_weights: bool = True,
    attn_mask: Tensor | None = None,
    average_attn_weights: bool = True,
    is_causal: bool = False,
    *,
    exchange: PieceExchange,
    layer: CutLayer,
) -> tuple[Tensor, None]:
    """As torch's, of the own heads; the weights are those of no whole layer, and aren't given."""
    assert layer.heads is not None, "attention is cut by heads"
    if is_causal and attn_mask is None:
        raise RuntimeError("Need attn_mask if specifying the is_causal hint.")  # torch says so too
    # Most often all three are one: what is spread once is summed once.
    spread = {id(each): _spread(_batch_first(module, each), exchange) for each in (query, key, value)}
    given = [spread[id(each)] for each in (query, key, value)]
    bias = module.in_proj_bias
    biases = (None,) * 3 if bias is None else bias.chunk(3)
    parts = [
        _heads_of(functional.linear(each, weight, own), module.num_heads)
        for each, weight, own in zip(given, module.in_proj_weight.chunk(3), biases, strict=True)
    ]
    queries, keys, values = parts
    mask = _mask(attn_mask, key_padding_mask, queries, layer.heads[1], exchange.piece)
    mixed = functional.scaled_dot_product_attention(queries, keys, values, attn_mask=mask)
    outputs: Tensor = module.out_proj(mixed.transpose(1, 2).flatten(2))
    if query.dim() == 2:
        return outputs.squeeze(0), None
    return (outputs if module.batch_first else outputs.transpose(0, 1)), None


def _heads_of(projected: Tensor, heads: int) -> Tensor:
    """As [n, heads, t, numbers], of [n, t, width]."""
    return projected.view(*projected.shape[:2], heads, -1).transpose(1, 2)


def _batch_first(module: nn.MultiheadAttention, given: Tensor) -> Tensor:
    """As [n, t, width]."""
    if given.dim() == 2:
        return given.unsqueeze(0)
    return given if module.batch_first else given.transpose(0, 1)


def _mask(
    attention: Tensor | None, padding: Tensor | None, queries: Tensor, cut: TensorCut, piece: int
) -> Tensor | None:
    """What is added to the weights of the own heads, of both masks: [n, heads, t, s] or fewer numbers."""
    found = None
    if attention is not None:
        found = _added(attention, queries)
        if found.dim() == 3:  # of each sample's heads
            first, end = cut.unit_bounds[piece]
            found = found.view(-1, cut.units, *found.shape[1:])[:, first:end]
    if padding is not None:
        more = _added(padding if padding.dim() == 2 else padding.unsqueeze(0), queries)[:, None, None, :]
        found = more if found is None else found + more
    return found


def _added(mask: Tensor, queries: Tensor) -> Tensor:
    """A mask as numbers; a true one means that nobody looks there."""
    if mask.dtype != torch.bool:
        return mask.to(queries.dtype)
    return torch.zeros_like(mask, dtype=queries.dtype).masked_fill(mask, float("-inf"))


_FORWARDS: Mapping[str, Callable[..., Any]] = {
    COLUMNS: _columns,
    COLUMNS_APART: _columns_apart,
    ROWS: _rows,
    DIMENSIONS: _dimensions,
    VOCABULARY: _vocabulary,
    CHANNELS: _channels,
    ATTENTION: _attention,
}
