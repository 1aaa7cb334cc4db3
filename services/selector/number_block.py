"""Several columns of numbers that grow together."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

_FIRST_CAPACITY = 1024


class NumberBlock:
    """Named float64 columns of equal length; a row is written in one operation. Rows begin as `fill`."""

    def __init__(self, names: Sequence[str], fill: float = 0.0) -> None:
        self._place = {name: place for place, name in enumerate(names)}
        self._fill = fill
        self._numbers = np.full((len(names), _FIRST_CAPACITY), fill)
        self._length = 0

    def __contains__(self, name: str) -> bool:
        return name in self._place

    @property
    def bytes(self) -> int:
        """Memory of all columns, with what is kept for growing."""
        return self._numbers.nbytes

    def column(self, name: str) -> npt.NDArray[np.float64]:
        """One column; it shows later changes until the block grows."""
        return self._numbers[self._place[name], : self._length]

    def append(self) -> None:
        """One more row."""
        if self._length == self._numbers.shape[1]:
            self._numbers = np.concatenate([self._numbers, np.full_like(self._numbers, self._fill)], axis=1)
        self._length += 1

    def put(self, row: int, values: Sequence[float]) -> None:
        """All numbers of a row, in the order of the names."""
        self._numbers[:, row] = values

    def put_rows(self, rows: npt.NDArray[np.intp], values: npt.NDArray[np.float64]) -> None:
        """All numbers of several rows, a line of `values` each."""
        self._numbers[:, rows] = values.T

    def set(self, row: int | npt.NDArray[np.intp], name: str, value: float | npt.NDArray[np.float64]) -> None:
        """One number of a row, or of several rows."""
        self._numbers[self._place[name], row] = value
