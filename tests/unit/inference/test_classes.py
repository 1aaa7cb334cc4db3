"""Outputs get the names and probabilities of the classes that the model's labels stand for."""

import numpy as np
import pytest

from peerloom.client.types.inference import Inference
from peerloom.errors import DataLossError
from peerloom.inference.client.classes import with_classes
from peerloom.kit.raw_input import RawInput

RAW = RawInput((1,), "uint8", 0, 9, None, ("cat", "dog"))


def answer(outputs: object) -> Inference:
    return Inference(np.array(outputs), "local", "", (), 0.0)


def test_logits_become_probabilities_by_hand() -> None:
    """ln 3 against 0 is 3 to 1."""
    found = with_classes(answer([[0.0, np.log(3)], [1.0, 1.0 - np.log(9)]]), RAW, is_vote=False)
    assert (found.labels, found.classes) == (("dog", "cat"), ("cat", "dog"))
    assert found.probabilities == pytest.approx(np.array([[0.25, 0.75], [0.9, 0.1]]))


def test_probabilities_and_votes_stay_what_they_are() -> None:
    mean = with_classes(answer([[0.2, 0.8]]), RAW, is_vote=False)
    assert mean.probabilities == pytest.approx(np.array([[0.2, 0.8]]))
    vote = with_classes(answer([1, 0]), RAW, is_vote=True)
    assert (vote.labels, vote.probabilities) == (("dog", "cat"), None)


def test_without_labels_outputs_stay_alone() -> None:
    for raw in (None, RawInput.of_text(4)):
        found = with_classes(answer([[0.0, 1.0]]), raw, is_vote=False)
        assert (found.labels, found.classes, found.probabilities) == ((), (), None)


@pytest.mark.parametrize(
    ("outputs", "is_vote"), [([[0.0, 1.0, 2.0]], False), ([0.0], False), ([[[0.0, 1.0]]], False), ([2], True)]
)
def test_labels_of_other_outputs_are_not_believed(outputs: object, is_vote: bool) -> None:
    with pytest.raises(DataLossError, match="names 2 classes"):
        with_classes(answer(outputs), RAW, is_vote=is_vote)
