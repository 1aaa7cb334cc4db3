"""Raw inputs as arrays, checked against what a model's task declared before they are believed."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from peerloom.errors import InvalidArgumentError
from peerloom.kit.raw_input import RawInput
from peerloom.kit.tensors import check_finite

Array = npt.NDArray[Any]
MOST_SAMPLES = 65536


def raw_values(inputs: Any, raw: RawInput) -> Array:
    """A batch [n, *shape] of the declared type, n from 1 to 65,536; of text [n, t], t from 1 to shape[0].

    Dimensions of one may be left out: grey pictures are often [n, height, width]. Numbers of another type are
    taken where all of them are the same in the declared one. Raises InvalidArgumentError, which says what was
    expected and what was given.
    """
    array = _as_array(inputs, raw)
    _check_shape(array, raw)
    if raw.vocabulary is None:
        array = array.reshape(len(array), *raw.shape)
    _check_range(array, raw)
    with np.errstate(all="ignore"):  # compared right below
        converted = array.astype(raw.dtype)
    if np.dtype(raw.dtype).kind != "f":
        _refuse(array, converted != array, f"whole {range_of(raw)}", "NOT_WHOLE")
    check_finite(converted)  # a declared range may be beyond the type's
    return np.ascontiguousarray(converted)


def encode(texts: Sequence[str | bytes], raw: RawInput) -> Array:
    """Texts of one length as their tokens [n, t]. Raises InvalidArgumentError for what has none."""
    vocabulary = raw.vocabulary
    if vocabulary is None:
        raise InvalidArgumentError.of_field("inputs", "text", f"{shape_of(raw)} of {range_of(raw)}: no text")
    rows = [_tokens(text, vocabulary.characters) for text in texts]
    if len({len(row) for row in rows}) > 1:
        found = f"{min(map(len, rows))} to {max(map(len, rows))} tokens"
        raise InvalidArgumentError.of_field("inputs", found, "texts of one length, or one text at a time")
    return np.array(rows, dtype=raw.dtype)


def decode(token: int, raw: RawInput) -> bytes:
    """The text of a token, in UTF-8; nothing for one beyond the vocabulary."""
    characters = raw.vocabulary.characters if raw.vocabulary else ""
    if characters:
        return characters[token : token + 1].encode()
    return bytes([token]) if token < 256 else b""


def shape_of(raw: RawInput) -> str:
    """What a batch has to be, e.g. "uint8[n, 1, 8, 8]"."""
    if raw.vocabulary:
        return f"texts of 1 to {raw.shape[0]} tokens, or these as numbers,"
    return f"{raw.dtype}[{', '.join(['n', *map(str, raw.shape)])}]"


def range_of(raw: RawInput) -> str:
    """The range of its numbers, in words."""
    return f"values from {raw.low:g} to {raw.high:g}"


def _as_array(inputs: Any, raw: RawInput) -> Array:
    try:
        array = np.asarray(inputs)
    except ValueError as error:  # lists of unequal lengths
        raise InvalidArgumentError.of_field("inputs", "lists of unequal lengths", shape_of(raw)) from error
    if array.dtype.kind not in "biuf":
        raise InvalidArgumentError.of_field("inputs", f"{array.dtype}", f"numbers, {shape_of(raw)}")
    return array


def _check_shape(array: Array, raw: RawInput) -> None:
    if raw.vocabulary is not None:
        fits = array.ndim == 2 and 1 <= array.shape[1] <= raw.shape[0]
    else:
        fits = _without_ones(array.shape[1:]) == _without_ones(raw.shape)
    if not array.ndim or not fits:
        limit = f"{shape_of(raw)} of {range_of(raw)}"
        raise InvalidArgumentError.of_field("inputs", f"{array.dtype}{list(array.shape)}", limit)
    if not 1 <= len(array) <= MOST_SAMPLES:
        limit = f"1 to {MOST_SAMPLES:,} samples"
        raise InvalidArgumentError.of_field("inputs", f"{len(array):,} samples", limit)


def _without_ones(shape: Sequence[int]) -> list[int]:
    return [size for size in shape if size != 1]


def _check_range(array: Array, raw: RawInput) -> None:
    check_finite(array)
    _refuse(array, (array < raw.low) | (array > raw.high), range_of(raw), "OUT_OF_RANGE")


def _refuse(array: Array, wrong: npt.NDArray[np.bool_], limit: str, reason: str) -> None:
    """Raises InvalidArgumentError which names the first of the wrong numbers, if there are any."""
    if not wrong.any():
        return
    first = tuple(int(index[0]) for index in np.nonzero(wrong))
    count = int(np.count_nonzero(wrong))
    raise InvalidArgumentError(
        f"inputs{list(first)} is {float(array[first]):g}, but the model takes {limit}. Of the {array.size:,} "
        f"numbers given, from {float(array.min()):g} to {float(array.max()):g}, {count:,} are wrong so.",
        reason=reason,
        metadata={"field": "inputs"},
    )


def _tokens(text: str | bytes, characters: str) -> list[int]:
    if not characters:
        return list(text.encode() if isinstance(text, str) else text)
    places = {character: place for place, character in enumerate(characters)}
    try:
        return [places[each] for each in (text if isinstance(text, str) else text.decode())]
    except (KeyError, UnicodeDecodeError) as error:
        known = f"characters of the model's vocabulary ({characters[:60]!r})"
        raise InvalidArgumentError.of_field("inputs", str(error)[:40], known) from error
