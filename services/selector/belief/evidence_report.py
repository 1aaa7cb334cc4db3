"""Evidence as reported: what a fact carries, and which reports are refused."""

from collections.abc import Sequence
from dataclasses import dataclass

from peerloom.errors import InvalidArgumentError
from peerloom.kit.checks import check_choice, check_range, check_text
from peerloom.kit.limits import (
    MAX_DELAY_S,
    MAX_DETAIL_CHARACTERS,
    MAX_SLOTS,
    MAX_SPEED_GFLOPS,
    MAX_TRANSFER_BYTES,
    NODE_ID,
)
from peerloom.v1.selector_pb2 import (
    EVIDENCE_KIND_LIE,
    EVIDENCE_KIND_TRAINING,
    EVIDENCE_KIND_TRANSFER,
    EVIDENCE_KIND_UNFINISHED,
    EVIDENCE_KIND_WRONG_ANSWER,
    EvidenceKind,
)

MAX_EVIDENCE = 1000
# How sessions end is the registry's to tell: a reporter saw no more of a session than its own calls.
REPORTED_KINDS = (
    EVIDENCE_KIND_TRANSFER,
    EVIDENCE_KIND_TRAINING,
    EVIDENCE_KIND_UNFINISHED,
    EVIDENCE_KIND_LIE,
    EVIDENCE_KIND_WRONG_ANSWER,
)
_KNOWN = ", ".join(f"{EvidenceKind.Name(kind)} ({kind})" for kind in REPORTED_KINDS)
REGISTRY_PREFIX = "registry/"
HEARTBEAT_LIMIT_S = 3600.0
_LAST_TIME_S = 253_402_300_799  # the end of the year 9999, where a protobuf Timestamp ends


@dataclass(frozen=True, slots=True)
class Evidence:
    """One fact about one node; times are seconds since 1970. `reporter` told of it ("": the registry)."""

    evidence_id: str
    node_id: str
    kind: EvidenceKind.ValueType
    time_s: float
    delay_s: float = 0.0
    online_s: float = 0.0
    transfer_bytes: int = 0
    job_id: str = ""
    detail: str = ""
    speed_gflops: float = 0.0
    slots: int = 0
    reporter: str = ""


def check_report(evidence: Sequence[Evidence]) -> None:
    """Raises InvalidArgumentError unless all of it may be applied.

    A node that the selector hasn't met is no reason to refuse: the reporter may be ahead of the registry's
    log, and evidence refused would be lost. Its id must have a node id's form, that is all here; the store
    bounds how many such nodes it keeps.
    """
    if not 1 <= len(evidence) <= MAX_EVIDENCE:
        raise InvalidArgumentError.of_field(
            "evidence", f"{len(evidence)} entries", f"1 to {MAX_EVIDENCE} entries"
        )
    for index, one in enumerate(evidence):
        _check(one, f"evidence[{index}]")


def _check(one: Evidence, at: str) -> None:
    check_text(f"{at}.evidence_id", one.evidence_id, low=1, high=128)
    if one.evidence_id.startswith(REGISTRY_PREFIX):
        limit = f"anything that doesn't begin with {REGISTRY_PREFIX!r}: these ids are the registry's events"
        raise InvalidArgumentError.of_field(f"{at}.evidence_id", one.evidence_id, limit)
    if not NODE_ID.fullmatch(one.node_id):
        limit = "a node id: 'node-' and 12 hexadecimal digits"
        raise InvalidArgumentError.of_field(f"{at}.node_id", one.node_id[:80], limit)
    check_choice(f"{at}.kind", one.kind, REPORTED_KINDS, f"one of {_KNOWN}")
    check_range(f"{at}.delay_s", one.delay_s, 0, MAX_DELAY_S)
    check_range(f"{at}.online_s", one.online_s, 0, 0)
    check_range(f"{at}.transfer_bytes", one.transfer_bytes, 0, MAX_TRANSFER_BYTES)
    check_range(f"{at}.speed_gflops", one.speed_gflops, 0, MAX_SPEED_GFLOPS)
    check_range(f"{at}.slots", one.slots, 0, MAX_SLOTS)
    check_range(f"{at}.time", one.time_s, 0, _LAST_TIME_S)
    check_text(f"{at}.job_id", one.job_id, high=128)
    check_text(f"{at}.detail", one.detail, high=MAX_DETAIL_CHARACTERS)
