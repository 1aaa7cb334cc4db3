"""Artifacts as the nodes keep them."""

from dataclasses import dataclass
from typing import Literal

ArtifactKind = Literal["unknown", "model", "data_set", "code", "checkpoint"]
ModelFormat = Literal["safetensors", "hugging-face", "dcp"]


@dataclass(frozen=True)
class Artifact:
    """Bytes known by their SHA-256, 64 lower-case hexadecimal digits."""

    digest: str
    size_bytes: int
    name: str


@dataclass(frozen=True)
class ArtifactHolder:
    """Who holds an artifact; `node_id` is empty for the trainer, which is no node."""

    name: str
    address: str
    node_id: str


@dataclass(frozen=True)
class KeptArtifact:
    """An artifact with the names of those who keep it whole, and of those where it is pinned.

    `maker` is who made it by the job `job_id` ("" where there was none); `used_by` are jobs that run on it.
    """

    digest: str
    size_bytes: int
    name: str
    kind: ArtifactKind
    job_id: str
    maker: str
    holders: tuple[str, ...]
    pinned_by: tuple[str, ...]
    used_by: tuple[str, ...]

    def __str__(self) -> str:
        return (
            f"{self.digest[:12]} {self.name} ({self.kind}, {self.size_bytes:,} bytes) at {len(self.holders)}"
        )


@dataclass(frozen=True)
class ArtifactManifest:
    """An artifact and its chunks: all of `chunk_bytes` but the last."""

    artifact: KeptArtifact
    chunk_bytes: int
    chunk_digests: tuple[str, ...]
