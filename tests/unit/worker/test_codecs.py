"""Codecs by hand, and within their bounds for any values; what isn't finite is not hidden."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from peerloom.kit.codec_sizes import block_values, encoded_bytes
from peerloom.kit.sync_method import SyncMethod
from peerloom.worker.sync.codecs import Codec, codec_of
from peerloom.worker.sync.codecs.casting import Casting
from peerloom.worker.sync.codecs.microscaling import Microscaling
from peerloom.worker.sync.codecs.quantising import Quantising, Signs
from peerloom.worker.sync.codecs.sparsifying import Sparsifying
from peerloom.worker.sync.codecs.two_bits import TwoBits

CODECS: dict[str, Codec] = {
    "none": Casting(torch.float32),
    "fp16": Casting(torch.float16),
    "bf16": Casting(torch.bfloat16),
    "int8": Quantising("int8"),
    "int4": Quantising("int4"),
    "mxfp4": Microscaling(),
    "2bit": TwoBits(),
    "1bit": Signs(),
    "topk": Sparsifying(0.25),
}
METHODS = {name: SyncMethod(topology="direct", codec=name, ratio=0.25 * (name == "topk")) for name in CODECS}
BLOCK = block_values("int8")  # the largest: all others' end where one of these does
values = st.floats(-(2.0**99), 2.0**99, width=32)


def there_and_back(name: str, *rows: list[float]) -> list[list[float]]:
    sent = torch.tensor(rows)
    encoded = CODECS[name].encode(sent)
    assert encoded.dtype == torch.uint8
    assert encoded.shape == (len(rows), encoded_bytes(METHODS[name], sent.shape[1]))
    came: list[list[float]] = CODECS[name].decode(encoded, sent.shape[1]).tolist()
    return came


def test_int8_is_a_whole_number_of_127ths_of_the_largest() -> None:
    """The largest is 254, so a unit is 2: 3.1 is 1.55 units, so 2; -0.9 is less than half a unit."""
    assert there_and_back("int8", [254.0, 3.1, -0.9, -254.0]) == [[254.0, 4.0, 0.0, -254.0]]


def test_int4_is_a_whole_number_of_sevenths_of_the_largest() -> None:
    """A unit is 2 in the first row and 1 in the second: each block has its own, each row its blocks."""
    came = there_and_back("int4", [14.0, 2.9, -5.2], [-7.0, 2.9, 0.4])
    assert came == [[14.0, 2.0, -6.0], [-7.0, 3.0, 0.0]]


def test_int4_puts_two_numbers_into_a_byte_the_first_into_its_lower_half() -> None:
    encoded = CODECS["int4"].encode(torch.tensor([[7.0, -7.0]]))
    assert encoded[0, :4].view(torch.float32).item() == 1.0
    assert encoded[0, 4].item() == 15 + (1 << 4)


def test_mxfp4_is_the_nearest_of_eight_numbers_and_their_negatives() -> None:
    """The largest is from 4 to 8, so the scale is 1. Borders lie halfway: 0.25, 0.75 ... 2.5, 3.5 and 5."""
    row = [0.2, 0.3, 0.8, 1.2, 1.3, 1.8, 2.4, 2.6, 3.6, 4.9, 5.1, 7.9]
    came = [0.0, 0.5, 1.0, 1.0, 1.5, 2.0, 2.0, 3.0, 4.0, 4.0, 6.0, 6.0]
    assert there_and_back("mxfp4", row) == [came]
    assert there_and_back("mxfp4", [-value for value in row]) == [[-value for value in came]]


def test_mxfp4_of_two_equally_near_numbers_takes_the_greater() -> None:
    assert there_and_back("mxfp4", [4.0, 0.25, 2.5, 5.0, -0.25, -2.5]) == [[4.0, 0.5, 3.0, 6.0, 0.0, -2.0]]


def test_mxfp4_is_laid_out_as_its_specification_says() -> None:
    """6 is 2^0 x 1.5 x 2^2: an exponent of 0 (127) in a byte by itself, then 0111 for 6 and 1010 for -1."""
    encoded = CODECS["mxfp4"].encode(torch.tensor([[6.0, -1.0]]))
    assert encoded[0, :2].tolist() == [127, 0b1010_0111]


def test_mxfp4_tells_small_values_beside_large_ones_and_others_by_a_scale_of_their_own() -> None:
    """An eighth of the largest is half a number of int4; the 33rd value is in another block."""
    row = [4.0, 0.5, *[0.0] * 30, 0.001953125]
    assert there_and_back("mxfp4", row) == [row]


@pytest.mark.parametrize("size", [2.0**-100, 1.0, 2.0**120])
def test_mxfp4_holds_for_values_of_any_size(size: float) -> None:
    row = [size * value for value in (7.0, -3.0, 0.5, 0.1)]
    assert there_and_back("mxfp4", row) == [[size * value for value in (6.0, -3.0, 0.5, 0.0)]]


def test_two_bits_tell_signs_and_one_of_two_sizes() -> None:
    """The root of (36 + 20 + 8 + 0) / 4 is 4, the border 3.9264, and the sizes 1.8112 and 6.04.

    Of 1.51 x 4 there are four bits behind the first: 6; the other is five steps of 0.06 times that.
    """
    row = [6.0, -math.sqrt(20), math.sqrt(8), 0.0]
    assert there_and_back("2bit", row)[0] == pytest.approx([6.0, -6.0, 1.8, 1.8])


def test_two_bits_put_four_numbers_into_a_byte_behind_the_sizes() -> None:
    """6 is 2^2 x 1.1000, so 0 10000001 1000; behind it 5 steps. From the last number: 01, 01, 10 and 11."""
    encoded = CODECS["2bit"].encode(torch.tensor([[6.0, -math.sqrt(20), math.sqrt(8), 0.0]]))
    assert encoded[0].tolist() == [0b1000_0101, 0b10000001, 0b01011011]


def test_two_bits_tell_a_block_with_few_large_values_by_sizes_of_its_own() -> None:
    """1.51 times the root mean square is 17 for one value of 128, and would leave out three quarters of it.

    12 is the mean of 8 and 16, and a hundredth of it nearer to nothing than to a step.
    """
    assert there_and_back("2bit", [128.0, *[0.0] * 127]) == [[128.0, *[0.0] * 127]]
    row = [8.0, -16.0, *[0.12, -0.12] * 63]
    assert there_and_back("2bit", row)[0][:2] == [12.0, -12.0]
    assert not any(there_and_back("2bit", row)[0][2:])


def test_two_bits_take_no_more_for_a_last_block_of_few_values() -> None:
    """What fills it up doesn't count: all five are 3, so the larger size is 3."""
    row = [1.0] * 128 + [-3.0] * 5
    assert there_and_back("2bit", row) == [row]


def test_signs_have_the_mean_size_of_their_block() -> None:
    """(1 + 2 + 6) / 3 = 3; what fills the block up doesn't count."""
    assert there_and_back("1bit", [1.0, -2.0, 6.0]) == [[3.0, -3.0, 3.0]]


def test_a_block_has_a_scale_of_its_own() -> None:
    row = [1.0] * BLOCK + [-3.0] * 5
    assert there_and_back("1bit", row) == [row]
    assert there_and_back("int8", row)[0] == pytest.approx(row, rel=1e-6)


def test_topk_keeps_the_largest_by_size_where_they_were() -> None:
    """A quarter of eight values are two."""
    row = [0.1, -5.0, 2.0, 0.0, 3.0, -0.2, 1.0, 2.9]
    assert there_and_back("topk", row) == [[0.0, -5.0, 0.0, 0.0, 3.0, 0.0, 0.0, 0.0]]


def test_halves_round_to_the_nearest_they_have() -> None:
    """Between 2,048 and 4,096 fp16 has every second number; bf16 has every 16th."""
    assert there_and_back("fp16", [2051.0, 70_000.0]) == [[2052.0, math.inf]]
    assert there_and_back("bf16", [2051.0, 70_000.0]) == [[2048.0, 70_144.0]]


@pytest.mark.parametrize("name", CODECS)
def test_nothing_stays_nothing(name: str) -> None:
    assert there_and_back(name, [0.0] * 300) == [[0.0] * 300]


@pytest.mark.parametrize("wrong", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("name", CODECS)
def test_what_is_not_finite_is_not_hidden(name: str, wrong: float) -> None:
    row = [1.0] * 600
    row[300] = wrong
    came = there_and_back(name, row)[0]
    assert not math.isfinite(came[300])
    further_than_a_block = came[: 300 - BLOCK] + came[300 + BLOCK :]
    assert all(math.isfinite(value) for value in further_than_a_block)


def bound(name: str, row: list[float]) -> float:
    largest = max(map(abs, row))
    return {
        "none": 0.0,
        "bf16": largest * 2**-8,
        "int8": largest / 254,
        "int4": largest / 14,
        "mxfp4": largest / 4,
        "topk": sorted(map(abs, row))[-math.ceil(len(row) / 4)],
    }[name]


@settings(deadline=None, max_examples=60)
@given(st.lists(values, min_size=1, max_size=BLOCK))
@pytest.mark.parametrize("name", ["none", "bf16", "int8", "int4", "mxfp4", "topk"])
def test_no_value_is_further_off_than_its_codec_allows(name: str, row: list[float]) -> None:
    came = there_and_back(name, row)[0]
    slack = 1e-5 * max(map(abs, row)) + 1e-37
    assert max(abs(a - b) for a, b in zip(row, came, strict=True)) <= bound(name, row) + slack


@settings(deadline=None, max_examples=60)
@given(st.lists(values, min_size=1, max_size=2 * BLOCK))
@pytest.mark.parametrize("name", ["1bit", "2bit"])
def test_little_leaves_no_more_than_there_was(name: str, row: list[float]) -> None:
    """What error feedback needs: an error squared is the length squared, less what is sent of it."""
    scale = max(map(abs, row)) or 1.0
    scaled = [value / scale for value in row]
    came = there_and_back(name, scaled)[0]
    error = sum((a - b) ** 2 for a, b in zip(scaled, came, strict=True))
    assert error <= sum(value**2 for value in scaled) + 1e-4


def test_a_place_that_there_is_not_ends_nothing() -> None:
    """Whoever sends it lies, and could as well send any value."""
    encoded = CODECS["topk"].encode(torch.ones(1, 8))
    encoded[0, 8:] = 255
    assert CODECS["topk"].decode(encoded, 8).shape == (1, 8)


def test_short_messages_travel_as_they_are() -> None:
    assert isinstance(codec_of(METHODS["int8"], 100, torch.float32), Casting)
    assert isinstance(codec_of(METHODS["int8"], 10_000, torch.float32), Quantising)
    double = codec_of(METHODS["none"], 10_000, torch.float64)
    third = torch.tensor([[1 / 3]], dtype=torch.float64)
    assert torch.equal(double.decode(double.encode(third), 1), third)
