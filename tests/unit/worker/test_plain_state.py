"""What users register becomes JSON and tensors, and the same again; what can't is refused by its place."""

import json
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from peerloom.worker.updating.plain_state import put_together, taken_to_pieces

PLAIN = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5)
TENSORS = st.lists(st.integers(-9, 9), max_size=3).map(lambda values: torch.tensor(values, dtype=torch.int64))
VALUES = st.recursive(
    PLAIN | TENSORS,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.lists(inner, max_size=3).map(tuple)
        | st.dictionaries(
            st.sampled_from(["tensor", "list", "mapping", "0", "a", "b", "a.b", ""]), inner, max_size=3
        )
    ),
    max_leaves=8,
)


def as_lists(value: Any) -> Any:
    """The value with its tensors and types spelt out, so that == compares all of them."""
    if isinstance(value, torch.Tensor):
        return ("tensor", value.tolist())
    if isinstance(value, dict):
        return ("dict", {key: as_lists(one) for key, one in value.items()})
    if isinstance(value, list | tuple):
        return (type(value).__name__, [as_lists(one) for one in value])
    return (type(value).__name__, value)


@given(VALUES)
def test_what_is_taken_to_pieces_comes_together_the_same(value: Any) -> None:
    tensors: dict[str, torch.Tensor] = {}
    plain = json.loads(json.dumps(taken_to_pieces(value, "it", tensors)))
    assert as_lists(put_together(plain, tensors)) == as_lists(value)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ({"a": [0, object()]}, "it.a.1 is a object"),
        ({"a": {1: 2}}, "it.a is a dict with other keys than text"),
        ({1, 2}, "it is a set"),
    ],
)
def test_what_no_file_of_numbers_and_text_can_hold_is_refused(value: Any, message: str) -> None:
    with pytest.raises(TypeError, match=message):
        taken_to_pieces(value, "it", {})
