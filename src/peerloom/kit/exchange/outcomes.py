"""How a fetch is done, and what comes of it."""

from dataclasses import dataclass

from peerloom.kit.clock import Clock, SystemClock
from peerloom.v1.artifact_pb2 import ArtifactHolder, Manifest

LINE_LIMIT = 12
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

    `received_bytes` came over the network, `kept_bytes` were here from an earlier attempt; `givers` sent
    good bytes.
    """

    manifest: Manifest
    received_bytes: int
    kept_bytes: int
    givers: tuple[ArtifactHolder, ...]


@dataclass(frozen=True)
class Options:
    """How a fetch goes about its work.

    `line_limit` bounds the chunks on their way at once, and so the memory: 0.3 MB each. After `patience_s`
    seconds without a single chunk a fetch gives up.
    """

    line_limit: int = LINE_LIMIT
    patience_s: float = PATIENCE_S
    clock: Clock = SystemClock()  # noqa: RUF009  # it has no state
