"""The layers of models whose form is known, from their sizes alone: operations, parameters, activations."""

from collections.abc import Sequence
from itertools import pairwise

from peerloom.errors import InvalidArgumentError
from peerloom.kit.plan_model.model_layers import (
    BACKWARD_RATIO,
    MOST_PLANNED_LAYERS,
    ModelLayer,
    check_operations,
)

KNOWN_MODELS = {
    "digits": "the network of the task digits",
    "mlp:A:B:...": "linear layers from A values to B, and so on",
    "transformer:L:D[:S[:V]]": "L blocks of width D over S symbols (1024) of a vocabulary of V (32768)",
}
_SYMBOLS, _VOCABULARY = 1024, 32768
_HEAD_WIDTH = 64
_MOST_SIZE = 10**7
_INDEX_BYTES = 8


def known_model(text: str, operations_per_s: float, value_bytes: float = 4.0) -> tuple[ModelLayer, ...]:
    """The layers of "digits", "mlp:..." or "transformer:..."; a slot of speed 1 makes `operations_per_s`.

    Raises InvalidArgumentError.
    """
    check_operations(operations_per_s)
    name, *sizes = text.split(":")
    if name == "digits" and not sizes:
        return digits_layers(operations_per_s, value_bytes)
    numbers = [_size(text, one) for one in sizes]
    if name == "mlp" and 2 <= len(numbers) <= MOST_PLANNED_LAYERS + 1:
        return mlp_layers(numbers, operations_per_s, value_bytes)
    if name == "transformer" and 2 <= len(numbers) <= 4:
        return transformer_layers(*numbers, operations_per_s=operations_per_s, value_bytes=value_bytes)
    raise InvalidArgumentError.of_field("model", text, f"one of {', '.join(KNOWN_MODELS)}")


def _size(model: str, text: str) -> int:
    if not (text.isascii() and text.isdigit() and 1 <= int(text) <= _MOST_SIZE):
        raise InvalidArgumentError.of_field("model", model, f"of whole numbers from 1 to {_MOST_SIZE:,}")
    return int(text)


def _layer(
    name: str, parameters: int, operations: float, output: float, kept: float, operations_per_s: float
) -> ModelLayer:
    forward_s = operations / operations_per_s
    return ModelLayer(name, parameters, forward_s, BACKWARD_RATIO * forward_s, output, kept)


def mlp_layers(
    widths: Sequence[int], operations_per_s: float, value_bytes: float = 4.0
) -> tuple[ModelLayer, ...]:
    """Linear layers with biases, a rectifier after each but the last: 2ab operations from a values to b.

    A layer keeps what it got.
    """
    return tuple(
        _layer(f"linear {number}", a * b + b, 2 * a * b, value_bytes * b, value_bytes * a, operations_per_s)
        for number, (a, b) in enumerate(pairwise(widths))
    )


def digits_layers(operations_per_s: float, value_bytes: float = 4.0) -> tuple[ModelLayer, ...]:
    """Two convolutions of 3x3, each with its rectifier and pooling, and a linear layer.

    A convolution from a to b channels of n pixels makes 18abn operations. What is kept: its input, what the
    rectifier gave, and where pooling found its maxima.
    """
    found = []
    for number, (a, b, pixels) in enumerate(((1, 16, 64), (16, 32, 16))):
        pooled = b * pixels // 4
        kept = value_bytes * (a * pixels + b * pixels) + _INDEX_BYTES * pooled
        work = 18 * a * b * pixels
        found.append(
            _layer(f"convolution {number}", 9 * a * b + b, work, value_bytes * pooled, kept, operations_per_s)
        )
    return (*found, _layer("linear", 1290, 2560, value_bytes * 10, value_bytes * 128, operations_per_s))


def transformer_layers(
    blocks: int,
    width: int,
    symbols: int = _SYMBOLS,
    vocabulary: int = _VOCABULARY,
    *,
    operations_per_s: float,
    value_bytes: float = 4.0,
) -> tuple[ModelLayer, ...]:
    """An embedding, `blocks` equal blocks, and the layer that gives each symbol's probabilities.

    Of s symbols and width h a block has 12h^2 + 13h parameters and makes 24sh^2 + 4s^2h operations forward,
    the last layer 2shV (Narayanan et al., SC 2021, appendix); for its backward pass a block keeps
    sh(16v + 2) + as^2(2v + 1) bytes with a heads and v bytes a value, which is sh(34 + 5as/h) with 2
    (Korthikanti et al., MLSys 2023). Heads are 64 wide.
    """
    if blocks + 2 > MOST_PLANNED_LAYERS:
        raise InvalidArgumentError.of_field("blocks", blocks, f"at most {MOST_PLANNED_LAYERS - 2}")
    s, h, v, heads = symbols, width, value_bytes, max(1, width // _HEAD_WIDTH)
    embedding = _layer(
        "embedding", (vocabulary + s) * h, s * h, s * h * v, s * _INDEX_BYTES, operations_per_s
    )
    kept = s * h * (16 * v + 2) + heads * s * s * (2 * v + 1)
    work = 24 * s * h * h + 4 * s * s * h
    output = _layer(
        "output",
        h * vocabulary,
        2 * s * h * vocabulary,
        s * vocabulary * v,
        s * (h + vocabulary) * v,
        operations_per_s,
    )
    parameters = 12 * h * h + 13 * h
    inner = [
        _layer(f"block {number}", parameters, work, s * h * v, kept, operations_per_s)
        for number in range(blocks)
    ]
    return (embedding, *inner, output)
