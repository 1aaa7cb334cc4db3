"""The words of the SDK are those of the schema."""

from typing import Any, get_args

import pytest

from peerloom.client.conversions.words import number_of, word_of, words_of
from peerloom.client.types import FINAL_STATES, Backend, EvidenceKind, JobState, NodeState, ServiceName
from peerloom.client.types.artifacts import ArtifactKind
from peerloom.errors import InvalidArgumentError
from peerloom.v1 import artifact_pb2, registry_pb2, selector_pb2, trainer_pb2


@pytest.mark.parametrize(
    ("words", "enum", "extra"),
    [
        (ArtifactKind, artifact_pb2.ArtifactKind, {"unknown"}),
        (Backend, trainer_pb2.Backend, {"auto"}),
        (EvidenceKind, selector_pb2.EvidenceKind, {"unknown"}),
        (JobState, trainer_pb2.JobState, {"unknown"}),
        (NodeState, registry_pb2.NodeState, {"unknown"}),
        (ServiceName, registry_pb2.ServiceKind, {"registry"}),
    ],
)
def test_a_type_checker_knows_the_schema_s_words(words: Any, enum: Any, extra: set[str]) -> None:
    assert set(get_args(words)) == set(words_of(enum)) | extra


def test_words_and_numbers_are_the_same_both_ways() -> None:
    for word, number in words_of(trainer_pb2.JobState).items():
        assert word_of(trainer_pb2.JobState, number) == word
        assert number_of("states", trainer_pb2.JobState, word) == number
    assert word_of(trainer_pb2.JobState, 0) == word_of(trainer_pb2.JobState, 999) == "unknown"


def test_an_unknown_word_is_refused_with_the_nearest() -> None:
    with pytest.raises(InvalidArgumentError, match="did you mean model") as caught:
        number_of("kind", artifact_pb2.ArtifactKind, "modle")
    assert caught.value.metadata["field"] == "kind"


def test_a_job_ends_in_these_states() -> None:
    assert {"succeeded", "failed", "cancelled", "no_compute"} == FINAL_STATES
