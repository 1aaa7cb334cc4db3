"""How a fetch is done, and what comes of it: the artifact, and evidence about those who gave."""

from dataclasses import dataclass

from peerloom.kit.clock import Clock, SystemClock
from peerloom.kit.evidence import detailed, transferred, unfinished
from peerloom.v1.artifact_pb2 import ArtifactHolder, Manifest
from peerloom.v1.selector_pb2 import Evidence

FLIGHT_LIMIT = 12
PATIENCE_S = 20.0


@dataclass(frozen=True)
class Gave:
    """A holder sent good bytes, for so many seconds."""

    holder: ArtifactHolder
    digest: str
    size_bytes: int
    busy_s: float


@dataclass(frozen=True)
class Lied:
    """A holder sent bytes, or a manifest, that aren't what they should be; `detail` says what."""

    holder: ArtifactHolder
    digest: str
    detail: str


@dataclass(frozen=True)
class Fetched:
    """An artifact that is here, and what it cost.

    `received_bytes` came over the network, `kept_bytes` were here from an earlier attempt. `discarded_bytes`
    are those of the received that came for nothing: of chunks that failed, were wrong, or were late and then
    asked of another peer. `givers` sent good bytes.
    """

    manifest: Manifest
    received_bytes: int
    kept_bytes: int
    discarded_bytes: int
    givers: tuple[ArtifactHolder, ...]


@dataclass(frozen=True)
class FetchOptions:
    """How a fetch goes about its work.

    `flight_limit` bounds the chunks on their way at once, and so the memory: 0.3 MB each. After `patience_s`
    seconds without a single chunk a fetch gives up.
    """

    flight_limit: int = FLIGHT_LIMIT
    patience_s: float = PATIENCE_S
    clock: Clock = SystemClock()  # noqa: RUF009  # it has no state


def evidence_of(report: Gave | Lied, witness: str, wall_s: float) -> Evidence | None:
    """What a fetch saw of a holder, as evidence; None for a holder that is no node.

    `witness` begins the evidence's id; `wall_s` is the time, in seconds since 1970.
    """
    node_id, digest = report.holder.node_id, report.digest[:12]
    if not node_id:
        return None
    if isinstance(report, Gave):
        fact = transferred(witness, node_id, wall_s, report.busy_s, report.size_bytes)
        return detailed(fact, f"gave {report.size_bytes:,} bytes of the artifact {digest}")
    return detailed(unfinished(witness, node_id, wall_s), f"artifact {digest}: {report.detail}")
