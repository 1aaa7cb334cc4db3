"""What a model's file says of itself is believed within limits; beyond them the field is named."""

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from peerloom.errors import DataLossError, InvalidArgumentError
from peerloom.kit.raw_input import RawInput, Standardise
from peerloom.worker.model_origin import ModelOrigin, read_origin

DIGEST = "d" * 64
GOOD = ModelOrigin("digits", {"hidden": "32"}, (8, 8), "float32")


DECLARED = RawInput((8, 8), "uint8", 0, 16, Standardise((0.3,), (0.4,), 16), tuple("0123456789"))


def written(**changes: Any) -> Mapping[str, str]:
    """The metadata of a good file, but for these fields."""
    told = {"task": GOOD.task, "arguments": GOOD.arguments, "input_shape": GOOD.input_shape}
    return {"peerloom": json.dumps({**told, "input_dtype": GOOD.input_dtype, **changes})}


def test_what_was_written_is_read() -> None:
    assert read_origin(GOOD.to_metadata(), DIGEST) == GOOD == read_origin(written(), DIGEST)
    declared = replace(GOOD, raw_input=DECLARED)
    assert read_origin(declared.to_metadata(), DIGEST) == declared
    several = ModelOrigin("own:Task", {}, (), "", input_names=("ids", "mask"))
    assert read_origin(several.to_metadata(), DIGEST) == several
    built = replace(several, config={"model_type": "bert", "id2label": {"0": "gloomy"}})
    assert read_origin(built.to_metadata(), DIGEST) == built


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"task": ""}, "metadata.task"),
        ({"task": "t" * 257}, "metadata.task"),
        ({"task": "a\u001b[2J"}, "metadata.task"),
        ({"arguments": {str(number): "" for number in range(257)}}, "metadata.arguments' number"),
        ({"arguments": {"n" * 129: ""}}, "metadata.arguments' name"),
        ({"arguments": {"hidden": "1" * 4097}}, "metadata.arguments[hidden]"),
        ({"input_shape": [1] * 8}, "metadata.input_shape's length"),
        ({"input_shape": [-1]}, "metadata.input_shape"),
        ({"input_shape": [2**40]}, "metadata.input_shape"),
        ({"input_shape": [2**12, 2**13]}, "metadata.input_shape's product"),
        ({"input_dtype": "manual_seed"}, "metadata.input_dtype"),
        ({"input_dtype": ""}, "metadata.input_dtype"),
        ({"input_names": ["i" * 129]}, "metadata.input_names"),
        ({"input_names": ["i"] * 257}, "metadata.input_names' number"),
        ({"input_names": ["ids"], "input_dtype": "manual_seed"}, "metadata.input_dtype"),
        ({"task": "t" * 262_144}, "metadata[peerloom]"),
        ({"raw_input": replace(DECLARED, high=float("inf")).to_json()}, "metadata.raw_input.low, high"),
        ({"raw_input": replace(DECLARED, labels=("a\n",)).to_json()}, "metadata.raw_input.labels"),
        ({"raw_input": replace(DECLARED, shape=(8,)).to_json()}, "metadata.raw_input"),
        ({"raw_input": replace(DECLARED, transform=None).to_json()}, "metadata.raw_input"),
    ],
)
def test_a_value_beyond_its_limit_is_refused_with_its_field(changes: Mapping[str, Any], field: str) -> None:
    with pytest.raises(InvalidArgumentError) as refusal:
        read_origin(written(**changes), DIGEST)
    assert refusal.value.metadata["field"] == field


@pytest.mark.parametrize(
    "metadata",
    [
        None,
        {},
        {"peerloom": "no json"},
        {"peerloom": "[" * 50_000},
        {"peerloom": "[]"},
        written(arguments=[]),
        written(raw_input="code"),
        written(raw_input={"transform": "os.system"}),
        {"peerloom": '{"task": "a", "arguments": {}, "input_shape": [1e999], "input_dtype": "float32"}'},
    ],
)
def test_what_cannot_be_read_is_no_model_s_file(metadata: Mapping[str, str] | None) -> None:
    with pytest.raises(DataLossError, match="doesn't say which task built it"):
        read_origin(metadata, DIGEST)
