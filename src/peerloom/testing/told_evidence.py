"""What the selector is told of a node's past: a belief is never set, it comes from evidence."""

from dataclasses import dataclass

from peerloom.client.async_client import AsyncClient
from peerloom.kit.clock import Clock
from peerloom.kit.dialing import Dialer
from peerloom.kit.evidence import lied, trained, transferred, unfinished
from peerloom.testing.service_wiring import SELECTOR
from peerloom.v1.selector_pb2 import Evidence, ReportEvidenceRequest

_WITNESS = "a-test"
_TRANSFER_BYTES, _TIMEOUT_S = 1_000_000, 10.0


@dataclass(frozen=True)
class TrackRecord:
    """How often a node trained to the end, did not finish what it took, lied, and moved a megabyte.

    Trainings are those of one slot at `gflops`, transfers take `delay_s` seconds each.
    """

    trained: int = 0
    unfinished: int = 0
    lied: int = 0
    transfers: int = 0
    gflops: float = 10.0
    delay_s: float = 0.1

    def evidence(self, node_id: str, wall_s: float) -> list[Evidence]:
        """The facts, each with an id of its own."""
        told = [trained(_WITNESS, node_id, wall_s, self.gflops, 1) for _ in range(self.trained)]
        told += [unfinished(_WITNESS, node_id, wall_s) for _ in range(self.unfinished)]
        told += [lied(_WITNESS, node_id, wall_s) for _ in range(self.lied)]
        moved = (_WITNESS, node_id, wall_s, self.delay_s, _TRANSFER_BYTES)
        return [*told, *(transferred(*moved) for _ in range(self.transfers))]


async def tell_evidence(
    client: AsyncClient, dialer: Dialer, node: str, record: TrackRecord, clock: Clock
) -> None:
    """Reports the record of a node that the registry knows. Raises a PeerloomError."""
    facts = record.evidence((await client.node(node)).id, clock.wall_s())
    async with dialer.selector(SELECTOR) as selector:
        for fact in facts:
            request = ReportEvidenceRequest(evidence=[fact])
            await selector.call(selector.stub.ReportEvidence, request, _TIMEOUT_S)
