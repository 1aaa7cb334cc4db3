"""Ledgers of samples."""

from peerloom.client.conversions.federated import totals_of
from peerloom.client.conversions.stale import ranges_of, stale_totals_of
from peerloom.client.types import Ledger, LedgerStretch
from peerloom.v1 import trainer_pb2


def ledger_of(message: trainer_pb2.Ledger) -> Ledger:
    """Which samples were used, and whether each once."""
    return Ledger(
        is_exact=message.is_exact,
        verdict=message.verdict,
        training_samples=message.training_samples,
        discarded_samples=message.discarded_samples,
        stretches=tuple(
            LedgerStretch(
                generation=each.generation,
                last_generation=each.last_generation,
                workers=each.workers,
                first_step=each.first_step,
                last_step=each.last_step,
                first_epoch=each.first_epoch,
                first_sample=each.first_sample,
                last_epoch=each.last_epoch,
                end_sample=each.end_sample,
            )
            for each in message.stretches
        ),
        clients=totals_of(message.clients),
        counted=ranges_of(message.counted),
        stale=stale_totals_of(message.stale) if message.HasField("stale") else None,
    )
