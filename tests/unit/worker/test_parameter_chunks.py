"""Chunks of parameters, whatever the parameters' sizes: what is read and written is what was chosen."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from peerloom.kit.averaged_parts import CHUNK_VALUES
from peerloom.worker.sync.parameter_chunks import ParameterChunks

sizes = st.lists(
    st.one_of(st.integers(0, 5), st.integers(0, 9).map(CHUNK_VALUES.__mul__), st.integers(0, 900)),
    min_size=1,
    max_size=6,
)


def numbered(sizes: list[int]) -> list[torch.Tensor]:
    """Each value is its place among all."""
    return list(torch.arange(float(sum(sizes))).split(sizes))


def test_a_chunk_goes_on_in_the_next_parameter_and_zeros_fill_the_last() -> None:
    """One value of the first, all 128 of the second but the last, which is in the second chunk."""
    chunks = ParameterChunks([torch.tensor([7.0]), torch.arange(128.0)])
    assert chunks.read().tolist() == [[7.0, *range(127)], [127.0, *[0.0] * 127]]
    assert chunks.read(1, 2).tolist() == [[127.0, *[0.0] * 127]]


@given(sizes, st.integers(1, 5), st.data())
def test_what_is_chosen_is_what_lies_there(sizes: list[int], parts: int, data: st.DataObject) -> None:
    part = data.draw(st.integers(0, parts - 1))
    parameters = numbered(sizes)
    chunks = ParameterChunks(parameters)
    expected = [float(place) for place in range(sum(sizes)) if place // CHUNK_VALUES % parts == part]
    read = chunks.read(part, parts)
    assert read.flatten()[: len(expected)].tolist() == expected
    assert not read.flatten()[len(expected) :].any()
    chunks.write(-read - 1, part, parts)
    chosen = set(expected)
    written = [-place - 1 if place in chosen else place for place in map(float, range(sum(sizes)))]
    assert torch.cat(parameters).tolist() == written
    assert torch.cat([own for _, own in chunks.divided(chunks.read())]).tolist() == written


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32, torch.float64])
def test_parameters_of_any_layout_and_precision_are_written(dtype: torch.dtype) -> None:
    """The first's values don't lie one after the other; its 15 are the first chunk's."""
    across = torch.zeros(5, 3, dtype=dtype).t()
    parameters = [across, torch.zeros(2 * CHUNK_VALUES, dtype=dtype)]
    chunks = ParameterChunks(parameters)
    first = chunks.read(0, 3)
    assert first.dtype == (torch.float64 if dtype == torch.float64 else torch.float32)
    chunks.write(first + 1, 0, 3)
    assert across.tolist() == [[1.0] * 5] * 3
    assert parameters[1].tolist() == [1.0] * (CHUNK_VALUES - 15) + [0.0] * (CHUNK_VALUES + 15)
