"""Federated rounds."""

from collections.abc import Iterable

from peerloom.client.types import ClientPush, ClientTotals, FederatedRound
from peerloom.v1 import trainer_pb2


def round_of(message: trainer_pb2.FederatedRound) -> FederatedRound:
    """Who trained for a round, and what became of the updates."""
    pushes = tuple(
        ClientPush(
            client=push.client,
            node_id=push.node_id,
            version=push.version,
            samples=push.samples,
            verdict=push.verdict,
            weight=push.weight,
            reason=push.reason,
        )
        for push in message.pushes
    )
    return FederatedRound(tuple(message.drawn), message.reason, pushes, totals_of(message.clients))


def totals_of(messages: Iterable[trainer_pb2.ClientTotals]) -> tuple[ClientTotals, ...]:
    """What has counted of clients."""
    return tuple(
        ClientTotals(each.client, each.updates, each.samples, each.refused_updates, each.refused_samples)
        for each in messages
    )
