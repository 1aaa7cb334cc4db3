"""Parameters of one precision as chunks of values, one after the other; some of them are read and written."""

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from peerloom.kit.averaged_parts import CHUNK_VALUES
from peerloom.worker.sync.codecs.casting import wide

_Piece = tuple[Tensor, slice, slice]  # values of a parameter, and which rows and columns of chunks they are


class ParameterChunks:
    """A chunk is a row of `CHUNK_VALUES`, in single precision or better; zeros fill the last one up.

    Chosen are each of `parts` chunks from `part` on; only those are touched.
    """

    def __init__(self, parameters: Sequence[Tensor]) -> None:
        self._parameters = parameters
        self._values = sum(each.numel() for each in parameters)

    def read(self, part: int = 0, parts: int = 1) -> Tensor:
        """A copy of them [n, CHUNK_VALUES]."""
        chosen = len(range(part, -(-self._values // CHUNK_VALUES), parts))
        chunks = wide(self._parameters[0].new_zeros(chosen, CHUNK_VALUES))
        for _, _, pieces in self._places(part, parts):
            for values, rows, columns in pieces:
                chunks[rows, columns] = values
        return chunks

    def write(self, chunks: Tensor, part: int = 0, parts: int = 1) -> None:
        """Gives the parameters these values [n, CHUNK_VALUES]."""
        for parameter, flat, pieces in self._places(part, parts):
            for values, rows, columns in pieces:
                values.copy_(chunks[rows, columns])
            if flat.data_ptr() != parameter.data_ptr():  # its values don't lie one after the other
                parameter.copy_(flat.view_as(parameter))

    def divided(self, chunks: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
        """Each parameter, and what all the chunks have for it, in its shape."""
        own = torch.split(chunks.flatten()[: self._values], [each.numel() for each in self._parameters])
        for parameter, values in zip(self._parameters, own, strict=True):
            yield parameter, values.view_as(parameter)

    def _places(self, part: int, parts: int) -> Iterator[tuple[Tensor, Tensor, Iterator[_Piece]]]:
        start = 0
        for parameter in self._parameters:
            flat = parameter.detach().flatten()
            yield parameter, flat, _pieces(flat, start, part, parts)
            start += len(flat)


def _pieces(flat: Tensor, start: int, part: int, parts: int) -> Iterator[_Piece]:
    """What lies in chosen chunks of values that begin with the `start`-th: three pieces at most.

    A chunk that begins before them, all that lie between, and one that ends behind them.
    """
    stop, size = start + len(flat), CHUNK_VALUES
    chunk = start // size + (part - start // size) % parts
    while chunk * size < stop:
        begin, row = chunk * size, chunk // parts
        count = max(0, (stop - begin - size) // (parts * size) + 1) if begin >= start else 0
        if count:
            end = begin + ((count - 1) * parts + 1) * size
            between = flat[begin - start : end - start].unfold(0, size, parts * size)
            yield between, slice(row, row + count), slice(size)
        else:
            first, last, count = max(begin, start), min(begin + size, stop), 1
            values = flat[first - start : last - start].unsqueeze(0)
            yield values, slice(row, row + 1), slice(first - begin, last - begin)
        chunk += count * parts
