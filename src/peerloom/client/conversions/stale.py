"""Steps that take parts of batches in any order."""

from collections.abc import Iterable

from peerloom.client.types import StalePush, StaleStep, StaleTotals
from peerloom.v1 import trainer_pb2


def stale_of(message: trainer_pb2.StaleStep) -> StaleStep:
    """Which parts a step took and refused."""
    pushes = tuple(
        StalePush(
            node_id=push.node_id,
            version=push.version,
            age=push.age,
            samples=ranges_of(push.samples),
            verdict=push.verdict,
            weight=push.weight,
            reason=push.reason,
        )
        for push in message.pushes
    )
    return StaleStep(pushes, ranges_of(message.counted))


def ranges_of(messages: Iterable[trainer_pb2.SampleRange]) -> tuple[tuple[int, int], ...]:
    """Positions, from the first to one past the last."""
    return tuple((each.first, each.end) for each in messages)


def stale_totals_of(message: trainer_pb2.StaleTotals) -> StaleTotals:
    """What became of parts."""
    return StaleTotals(
        message.parts, message.merged, message.oldest, message.refused, message.refused_samples
    )
