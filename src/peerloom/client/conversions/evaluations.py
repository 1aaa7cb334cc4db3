"""The trainer's evaluation of a job's model."""

from peerloom.client.conversions.words import given, word_of
from peerloom.client.types import Evaluation
from peerloom.v1 import trainer_pb2


def evaluation_of(message: trainer_pb2.Evaluation) -> Evaluation:
    """An Evaluation message as a value."""
    return Evaluation(
        verdict=word_of(trainer_pb2.EvaluationVerdict, message.verdict).replace("_", " "),
        reason=message.reason,
        reason_code=message.reason_code,
        told=given(message, "told"),
        found=given(message, "found"),
        metric_name=message.metric_name or None,
        test_samples=message.test_samples,
        tolerance=message.tolerance,
        evaluation_s=message.evaluation_s,
    )
