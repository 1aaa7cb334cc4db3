"""Aim: a split is fixed, whole, without overlap, and gives each class its share."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as some

from peerloom.worker.tasks.images import stratified


def test_every_class_gives_its_share_by_hand() -> None:
    """By hand: ordered by label the samples are 0 2 4 | 1 3 5; every second one from the first is 0 4 3."""
    train, test = stratified(np.array([0, 1, 0, 1, 0, 1]), 3)
    assert test.tolist() == [0, 3, 4]
    assert train.tolist() == [1, 2, 5]


@given(labels=some.lists(some.integers(0, 9), min_size=2, max_size=300), data=some.data())
def test_both_parts_together_are_all_samples_once(labels: list[int], data: some.DataObject) -> None:
    test_count = data.draw(some.integers(1, len(labels) - 1))
    values = np.array(labels)
    train, test = stratified(values, test_count)
    assert len(test) == test_count
    assert sorted([*train.tolist(), *test.tolist()]) == list(range(len(labels)))
    share = test_count / len(labels)
    for label in set(labels):
        # Picks at even distances: a stretch of m samples holds less than one more or fewer than m * share.
        assert abs(np.sum(values[test] == label) - labels.count(label) * share) < 1
