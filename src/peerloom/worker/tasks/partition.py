"""Splits one set of labelled samples into a training and a test part, the same way everywhere."""

import numpy as np
import numpy.typing as npt

Indices = npt.NDArray[np.int64]


def stratified(labels: npt.NDArray[np.integer], test_count: int) -> tuple[Indices, Indices]:
    """Indices of the training and of the `test_count` test samples, both ascending; 1 <= test_count < n.

    The samples are put in the order of their labels and the test part is taken from it at even distances,
    so each class, and each stretch of the original order within a class, gives its share. No random
    numbers: the split is the same with every version of every library.
    """
    order = np.argsort(labels, kind="stable")
    picked = np.arange(test_count, dtype=np.int64) * len(labels) // test_count
    is_test = np.zeros(len(labels), dtype=bool)
    is_test[order[picked]] = True
    return np.flatnonzero(~is_test), np.flatnonzero(is_test)
