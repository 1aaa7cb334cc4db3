"""What raw inputs a model takes, and how they become its tensor: a task declares it, its models carry it."""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from google.protobuf import json_format

from peerloom.errors import InvalidArgumentError
from peerloom.kit.checks import check_line, check_range, check_text
from peerloom.v1 import common_pb2
from peerloom.v1.inference_pb2 import ModelDescription
from peerloom.v1.trainer_pb2 import Model

NUMBER_TYPES = ("float32", "float64", "float16", "int64", "int32", "int16", "int8", "uint8", "bool")
MOST_DIMENSIONS = 7  # a batch has one more
MOST_NUMBERS = 2**24  # in one sample: a model is tried on one of zeros
_LONGEST_JSON = 49_152  # a model's file says more of it than this
_LEAST_DIVISOR = 1e-30  # less is 0 in float32
_MOST_LABELS, _LONGEST_LABEL, _MOST_CHARACTERS = 1000, 64, 4096


@dataclass(frozen=True)
class Standardise:
    """(value / divisor - mean) / deviation, in float32.

    There are as many means as deviations: one, one a channel (the shape's first dimension), or one a value.
    """

    mean: tuple[float, ...]
    deviation: tuple[float, ...]
    divisor: float = 1.0


@dataclass(frozen=True)
class ScaleShift:
    """scale * value + shift, in float32 and rounded once; as many of both as `Standardise` has."""

    scale: tuple[float, ...]
    shift: tuple[float, ...]


@dataclass(frozen=True)
class Vocabulary:
    """Which numbers a text's parts are: the places of its `characters`; without any, its bytes in UTF-8."""

    characters: str = ""


Transform = Standardise | ScaleShift | Vocabulary


@dataclass(frozen=True)
class RawInput:
    """What one raw sample is, and how it becomes the tensor [*shape] that a model takes.

    `shape` has up to 7 dimensions, `dtype` is a type of numpy's by name, and each number lies within `low` to
    `high`. `transform` makes float32 of the numbers; without any they stay as they are. `labels` name the
    classes in the order of the model's outputs, which are logits then; empty for a model without classes.
    Text is declared by `of_text`: up to shape[0] tokens, which become int64. All of it takes at most 49,152
    characters as JSON.
    """

    shape: tuple[int, ...]
    dtype: str
    low: float
    high: float
    transform: Transform | None = None
    labels: tuple[str, ...] = ()

    @classmethod
    def of_text(cls, tokens: int, characters: str = "") -> "RawInput":
        """Text of 1 to `tokens` tokens: its bytes in UTF-8, or characters by their place in `characters`."""
        dtype, high = ("int32", len(characters) - 1) if characters else ("uint8", 255)
        return cls((tokens,), dtype, 0, high, Vocabulary(characters))

    @property
    def vocabulary(self) -> Vocabulary | None:
        """The tokens' meaning; None for a model that doesn't take text."""
        return self.transform if isinstance(self.transform, Vocabulary) else None

    @property
    def tensor_dtype(self) -> str:
        """Type of the numbers that the model takes."""
        if self.transform is None:
            return self.dtype
        return "int64" if self.vocabulary else "float32"

    def check(self, field: str) -> None:
        """Raises InvalidArgumentError, which names the part of `field`, for what is beyond its limits."""
        check_shape(f"{field}.shape", self.shape)
        if self.dtype not in NUMBER_TYPES:
            limit = f"one of {', '.join(NUMBER_TYPES)}"
            raise InvalidArgumentError.of_field(f"{field}.dtype", self.dtype[:32], limit)
        _check_numbers(f"{field}.low, high", (self.low, self.high))
        check_range(f"{field}.low", self.low, -math.inf, self.high)
        _check_transform(f"{field}.transform", self)
        check_range(f"{field}.labels' number", len(self.labels), 0, _MOST_LABELS)
        for label in self.labels:
            check_line(f"{field}.labels", label, low=1, high=_LONGEST_LABEL)
        if len(set(self.labels)) != len(self.labels):
            raise InvalidArgumentError.of_field(f"{field}.labels", "a name twice", "another for each class")
        check_text(f"{field} as JSON", json.dumps(self.to_json()), high=_LONGEST_JSON)

    def to_message(self) -> common_pb2.RawInput:
        """As a message."""
        shape = {"shape": self.shape, "dtype": self.dtype, "low": self.low, "high": self.high}
        message = common_pb2.RawInput(**shape, labels=self.labels)  # type: ignore[arg-type]  # by their names
        match self.transform:
            case Standardise(mean, deviation, divisor):
                message.standardise.CopyFrom(
                    common_pb2.Standardise(mean=mean, deviation=deviation, divisor=divisor)
                )
            case ScaleShift(scale, shift):
                message.scale_shift.CopyFrom(common_pb2.ScaleShift(scale=scale, shift=shift))
            case Vocabulary(characters):
                message.vocabulary.CopyFrom(common_pb2.Vocabulary(characters=characters))
        return message

    def to_json(self) -> dict[str, Any]:
        """As a file's metadata hold it."""
        return json_format.MessageToDict(self.to_message(), preserving_proto_field_name=True)


def check_shape(field: str, shape: tuple[int, ...]) -> None:
    """Raises InvalidArgumentError for more than 7 dimensions, or more than 2^24 numbers."""
    check_range(f"{field}'s length", len(shape), 0, MOST_DIMENSIONS)
    for length in shape:
        check_range(field, length, 0, MOST_NUMBERS)
    check_range(f"{field}'s product", math.prod(shape), 0, MOST_NUMBERS)


def raw_input_in(message: ModelDescription | Model) -> RawInput | None:
    """What a message about a model says of its raw inputs, checked; None where it says nothing."""
    return raw_input_of(message.raw_input) if message.HasField("raw_input") else None


def raw_input_of(message: common_pb2.RawInput, field: str = "raw_input") -> RawInput:
    """A message as what it declares, checked. Raises what `RawInput.check` does."""
    found = RawInput(
        tuple(message.shape),
        message.dtype,
        message.low,
        message.high,
        _transform_of(message),
        tuple(message.labels),
    )
    found.check(field)
    return found


def raw_input_from_json(written: Mapping[str, Any], field: str = "raw_input") -> RawInput:
    """What a file's metadata hold, checked; ValueError for what can't be read, else as `raw_input_of`."""
    try:
        message = json_format.ParseDict(dict(written), common_pb2.RawInput())
    except json_format.Error as error:
        raise ValueError(f"its raw input can't be read: {str(error)[:200]}") from error
    return raw_input_of(message, field)


def _transform_of(message: common_pb2.RawInput) -> Transform | None:
    match message.WhichOneof("transform"):
        case "standardise":
            told = message.standardise
            return Standardise(tuple(told.mean), tuple(told.deviation), told.divisor)
        case "scale_shift":
            return ScaleShift(tuple(message.scale_shift.scale), tuple(message.scale_shift.shift))
        case "vocabulary":
            return Vocabulary(message.vocabulary.characters)
    return None


def _check_transform(field: str, raw: RawInput) -> None:
    match raw.transform:
        case Standardise(mean, deviation, divisor):
            _check_pair(field, raw.shape, mean, deviation)
            _check_numbers(f"{field}.divisor", (divisor,))
            if min(abs(each) for each in (divisor, *deviation)) < _LEAST_DIVISOR:
                limit = f"{_LEAST_DIVISOR:g} or more, and so the divisor"
                raise InvalidArgumentError.of_field(f"{field}.deviation", "next to 0", limit)
        case ScaleShift(scale, shift):
            _check_pair(field, raw.shape, scale, shift)
        case Vocabulary(characters):
            check_text(f"{field}.characters", characters, high=_MOST_CHARACTERS)
            if len(set(characters)) != len(characters):
                raise InvalidArgumentError.of_field(f"{field}.characters", "one twice", "each character once")
            if raw != RawInput.of_text(math.prod(raw.shape), characters) or not raw.shape[0]:
                limit = "what RawInput.of_text makes: tokens without labels"
                raise InvalidArgumentError.of_field(field, "a vocabulary for something else", limit)


def _check_pair(field: str, shape: tuple[int, ...], one: tuple[float, ...], other: tuple[float, ...]) -> None:
    counts = {1, *shape[:1], math.prod(shape)}
    if len(one) != len(other) or len(one) not in counts:
        limit = f"as many of both: {' or '.join(str(count) for count in sorted(counts))} for {list(shape)}"
        raise InvalidArgumentError.of_field(field, f"{len(one)} and {len(other)} numbers", limit)
    _check_numbers(field, (*one, *other))


def _check_numbers(field: str, numbers: tuple[float, ...]) -> None:
    if not all(math.isfinite(number) and abs(number) < 1e38 for number in numbers):
        raise InvalidArgumentError.of_field(field, "NaN or too large a number", "finite numbers below 1e38")
