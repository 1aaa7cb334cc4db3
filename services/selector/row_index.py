"""From a word to the rows that carry it: memory grows with what nodes say, not with nodes times words."""

from collections.abc import Hashable, Sequence
from typing import Generic, TypeVar

import numpy as np
import numpy.typing as npt

W = TypeVar("W", bound=Hashable)


class RowIndex(Generic[W]):
    """Each row carries some words. `has` makes a word's array of rows once, and again after a change."""

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
