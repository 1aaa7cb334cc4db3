"""What a task declares of raw inputs is believed within limits; arrays and texts are checked against it."""

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from peerloom.errors import InvalidArgumentError
from peerloom.kit.raw_input import (
    RawInput,
    ScaleShift,
    Standardise,
    Vocabulary,
    raw_input_from_json,
    raw_input_of,
)
from peerloom.kit.raw_values import decode, encode, raw_values

DIGIT = RawInput((1, 2, 2), "uint8", 0, 16, Standardise((0.5,), (0.25,), 16), ("nought", "one"))
COLOURS = RawInput((3, 1, 1), "float32", -1, 1, ScaleShift((1.0, 2.0, 3.0), (0.0, 0.5, 1.0)))
TEXT = RawInput.of_text(4)
LETTERS = RawInput.of_text(4, "abc")


@pytest.mark.parametrize("raw", [DIGIT, COLOURS, TEXT, LETTERS, RawInput((2,), "int16", -5, 5)])
def test_what_is_written_is_read(raw: RawInput) -> None:
    raw.check("raw_input")
    assert raw_input_from_json(json.loads(json.dumps(raw.to_json()))) == raw
    assert raw_input_of(raw.to_message()) == raw


@pytest.mark.parametrize(
    ("raw", "field"),
    [
        (replace(DIGIT, shape=(1,) * 8), "raw_input.shape's length"),
        (replace(DIGIT, shape=(2**13, 2**12)), "raw_input.shape's product"),
        (replace(DIGIT, dtype="object"), "raw_input.dtype"),
        (replace(DIGIT, low=float("nan")), "raw_input.low, high"),
        (replace(DIGIT, high=float("inf")), "raw_input.low, high"),
        (replace(DIGIT, low=17), "raw_input.low"),
        (replace(DIGIT, transform=Standardise((0.5, 0.5), (1.0,))), "raw_input.transform"),
        (replace(DIGIT, transform=Standardise((0.5,) * 3, (1.0,) * 3)), "raw_input.transform"),
        (replace(DIGIT, transform=Standardise((0.5,), (0.0,))), "raw_input.transform.deviation"),
        (replace(DIGIT, transform=Standardise((0.5,), (1.0,), 0)), "raw_input.transform.deviation"),
        (replace(DIGIT, transform=ScaleShift((float("inf"),), (0.0,))), "raw_input.transform"),
        (replace(DIGIT, transform=Vocabulary()), "raw_input.transform"),
        (replace(TEXT, shape=(0,)), "raw_input.transform"),
        (RawInput.of_text(4, "aa"), "raw_input.transform.characters"),
        (RawInput.of_text(4, "".join(map(chr, range(5000)))), "raw_input.transform.characters"),
        (replace(DIGIT, labels=("a", "a")), "raw_input.labels"),
        (replace(DIGIT, labels=("a\u001b[2J",)), "raw_input.labels"),
        (replace(DIGIT, labels=("a" * 65,)), "raw_input.labels"),
        (replace(DIGIT, labels=tuple(map(str, range(1001)))), "raw_input.labels' number"),
        (replace(DIGIT, labels=tuple(f"{n:064}" for n in range(1000))), "raw_input as JSON"),
    ],
)
def test_what_is_beyond_its_limits_is_refused_with_its_field(raw: RawInput, field: str) -> None:
    with pytest.raises(InvalidArgumentError) as refusal:
        raw_input_of(raw.to_message())
    assert refusal.value.metadata["field"] == field


@pytest.mark.parametrize("written", [{"shape": "x"}, {"code": "import os"}, {"low": {}}, {"shape": [-1]}])
def test_what_cannot_be_read_is_a_value_error(written: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="can't be read"):
        raw_input_from_json(written)


def test_numbers_of_another_type_are_taken_where_they_are_the_same() -> None:
    given = np.array([[[[0.0, 16.0], [3.0, 4.0]]]])
    taken = raw_values(given, DIGIT)
    assert (taken.dtype, taken.tolist()) == (np.uint8, given.tolist())
    assert raw_values(given.tolist(), DIGIT).tolist() == given.tolist()
    assert raw_values(np.zeros((2, 3, 1, 1)), COLOURS).dtype == np.float32


@pytest.mark.parametrize(
    ("given", "raw", "said"),
    [
        ([[[[0.5, 0], [0, 0]]]], DIGIT, r"inputs\[0, 0, 0, 0\] is 0.5, but .* whole values from 0 to 16"),
        (
            [[[[0, 0], [0, 255]]]],
            DIGIT,
            r"\[0, 0, 1, 1\] is 255, but .* values from 0 to 16.*from 0 to 255, 1 are",
        ),
        ([[[[0, -1], [0, 0]]]], DIGIT, "is -1, but"),
        ([[[[0, np.nan], [0, 0]]]], DIGIT, r"inputs\[0, 0, 0, 1\] is nan"),
        (
            np.zeros((5, 2, 3)),
            DIGIT,
            r"float64\[5, 2, 3\]', but must be uint8\[n, 1, 2, 2\] of values",
        ),
        (np.zeros((0, 1, 2, 2)), DIGIT, "0 samples"),
        (np.float32(1), DIGIT, r"must be uint8\[n, 1, 2, 2\]"),
        ([[1, 2], [3]], DIGIT, "unequal lengths"),
        (np.array(["a"]), DIGIT, "must be numbers"),
        (np.zeros((1, 5)), TEXT, "texts of 1 to 4 tokens"),
        (np.full((1, 2), 3), LETTERS, "from 0 to 2"),
        (np.full((1, 1), 1e6), RawInput((1,), "float16", 0, 1e9), "is inf"),
    ],
)
def test_what_does_not_fit_is_told_with_what_does(given: Any, raw: RawInput, said: str) -> None:
    with pytest.raises(InvalidArgumentError, match=said):
        raw_values(given, raw)


def test_dimensions_of_one_may_be_left_out() -> None:
    grey = [[[0, 1], [2, 3]], [[4, 5], [6, 7]]]
    assert raw_values(grey, DIGIT).tolist() == [[sample] for sample in grey]
    assert raw_values([[1, 0, -1]], COLOURS).tolist() == [[[[1]], [[0]], [[-1]]]]
    with pytest.raises(InvalidArgumentError, match=r"uint8\[n, 1, 2, 2\]"):
        raw_values([[0, 1, 2, 3]], DIGIT)


def test_text_becomes_tokens_and_tokens_text() -> None:
    assert encode(["aé"], TEXT).tolist() == [[97, 0xC3, 0xA9]]
    assert encode(["cab", b"bbb"], LETTERS).tolist() == [[2, 0, 1], [1, 1, 1]]
    assert [decode(token, LETTERS) for token in (2, 3)] == [b"c", b""]
    assert [decode(token, TEXT) for token in (0xC3, 300)] == [b"\xc3", b""]
    with pytest.raises(InvalidArgumentError, match=r"'d'.*vocabulary"):
        encode(["d"], LETTERS)
    with pytest.raises(InvalidArgumentError, match="one length"):
        encode(["a", "ab"], TEXT)
    with pytest.raises(InvalidArgumentError, match=r"uint8\[n, 1, 2, 2\].*no text"):
        encode(["a"], DIGIT)
