"""What the columns are made of: blocks of numbers that grow together, and from a word to its rows."""

from collections.abc import Hashable, Sequence
from typing import Any, Generic, TypeVar

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
        """Memory of all columns, with the room that they keep for growing."""
        return self._numbers.nbytes

    def column(self, name: str) -> npt.NDArray[np.float64]:
        """One column; it shows later changes until the block grows."""
        return self._numbers[self._place[name], : self._length]

    def append(self) -> None:
        """Adds a row, all `fill`."""
        if self._length == self._numbers.shape[1]:
            self._numbers = np.concatenate([self._numbers, np.full_like(self._numbers, self._fill)], axis=1)
        self._length += 1

    def clear(self, row: int) -> None:
        """All of a row is `fill` again."""
        self._numbers[:, row] = self._fill

    def put(self, row: int, values: Sequence[float]) -> None:
        """All numbers of a row, in the order of the names."""
        self._numbers[:, row] = values

    def put_rows(self, rows: npt.NDArray[np.intp], values: npt.NDArray[np.float64]) -> None:
        """All numbers of several rows, a line of `values` each."""
        self._numbers[:, rows] = values.T

    def set(self, row: int | npt.NDArray[np.intp], name: str, value: float | npt.NDArray[np.float64]) -> None:
        """One number of a row, or of several rows."""
        self._numbers[self._place[name], row] = value


W = TypeVar("W", bound=Hashable)


class RowIndex(Generic[W]):
    """Which words each row carries. `has` makes a word's array of rows once, and again after a change."""

    def __init__(self) -> None:
        self._words: list[Sequence[W]] = []
        self._rows: dict[W, set[int]] = {}
        self._arrays: dict[W, npt.NDArray[np.intp]] = {}

    def put(self, row: int, words: Sequence[W]) -> None:
        """The row carries these words now; rows come in order, each new one is the next number."""
        if row == len(self._words):
            self._words.append(())
        before = self._words[row]
        if before == words:
            return
        self._words[row] = words
        for word in set(before).difference(words):
            self._rows[word].discard(row)
            self._arrays.pop(word, None)
            if not self._rows[word]:
                del self._rows[word]
        for word in set(words).difference(before):
            self._rows.setdefault(word, set()).add(row)
            self._arrays.pop(word, None)

    def has(self, word: W) -> npt.NDArray[np.bool_]:
        """For each row whether it carries the word."""
        mask = np.zeros(len(self._words), np.bool_)
        if word in self._rows:
            rows = self._arrays.get(word)
            if rows is None:
                rows = self._arrays[word] = np.fromiter(self._rows[word], np.intp, len(self._rows[word]))
            mask[rows] = True
        return mask


class OwnerIndex:
    """Each row's owner as a number, and how many rows each has; a number without rows is given again.

    `owner` int32 (-1: none), by row; `names` int32, by the owner's number.
    """

    def __init__(self) -> None:
        self.owner = np.full(_FIRST_CAPACITY, -1, np.int32)
        self._counts = np.zeros(_FIRST_CAPACITY, np.int32)
        self._numbers: dict[str, int] = {}
        self._keys: list[str] = []
        self._free: list[int] = []

    @property
    def names(self) -> npt.NDArray[np.int32]:
        """How many rows each owner has."""
        return self._counts[: max(1, len(self._keys))]

    @property
    def bytes(self) -> int:
        """Memory of both columns; the owners' names come on top."""
        return self.owner.nbytes + self._counts.nbytes

    def put(self, row: int, owner: str) -> None:
        """The row belongs to this owner now."""
        while row >= len(self.owner):
            self.owner = doubled(self.owner, fill=-1)
        if self._numbers.get(owner, -1) == self.owner[row] >= 0:
            return
        self.leave(row)
        number = self._number_of(owner)
        self.owner[row] = number
        self._counts[number] += 1

    def leave(self, row: int) -> None:
        """The row belongs to nobody."""
        number, self.owner[row] = int(self.owner[row]), -1
        if number >= 0:
            self._counts[number] -= 1
            if not self._counts[number]:
                del self._numbers[self._keys[number]]
                self._free.append(number)

    def _number_of(self, owner: str) -> int:
        if owner in self._numbers:
            return self._numbers[owner]
        number = self._free.pop() if self._free else len(self._keys)
        if number == len(self._keys):
            self._keys.append(owner)
        if number == len(self._counts):
            self._counts = doubled(self._counts)
        self._keys[number], self._numbers[owner] = owner, number
        return number


def doubled(column: npt.NDArray[Any], fill: int = 0) -> npt.NDArray[Any]:
    """A column with twice the room, the new half all `fill`."""
    return np.concatenate([column, np.full_like(column, fill)])
