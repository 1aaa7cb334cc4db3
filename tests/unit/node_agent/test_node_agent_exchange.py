"""What an agent tells of its artifacts, and what of its peers."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from peerloom.artifacts.fetch.outcomes import Gave, Lied, evidence_of
from peerloom.services.node_agent.membership.advertising import (
    AdvertisedChange,
    Advertisement,
    change_to_tell,
)
from peerloom.v1.artifact_pb2 import ArtifactHolder
from peerloom.v1.selector_pb2 import EvidenceKind

DIGEST = "ab" * 32
HOLDER = ArtifactHolder(node_id="node-0123456789ab", name="ada", address="10.0.0.1:1")


def test_nothing_is_told_to_a_registry_that_knows_or_by_a_node_that_has_nothing() -> None:
    now = Advertisement(3, frozenset("ab"))
    assert change_to_tell(now, now, 3) is None
    assert change_to_tell(Advertisement(), Advertisement(), 0) is None


def test_a_change_is_told_and_all_where_the_registry_forgot() -> None:
    told, now = Advertisement(3, frozenset("ab")), Advertisement(4, frozenset("bc"))
    assert change_to_tell(now, told, 3) == AdvertisedChange(3, frozenset("c"), frozenset("a"))
    assert change_to_tell(now, told, 0) == AdvertisedChange(0, frozenset("bc"), frozenset())
    assert change_to_tell(now, told, 2) == AdvertisedChange(0, frozenset("bc"), frozenset())


@given(told=st.frozensets(st.integers(0, 9).map(str)), now=st.frozensets(st.integers(0, 9).map(str)))
def test_a_change_makes_of_what_was_told_what_is(told: frozenset[str], now: frozenset[str]) -> None:
    change = change_to_tell(Advertisement(2, now), Advertisement(1, told), 1)
    assert change is not None
    assert (told - change.removed) | change.added == now


@pytest.mark.parametrize(
    ("report", "kind"),
    [
        (Gave(HOLDER, DIGEST, 1000, 2.5), EvidenceKind.EVIDENCE_KIND_TRANSFER),
        (Lied(HOLDER, DIGEST, "sent a wrong chunk"), EvidenceKind.EVIDENCE_KIND_UNFINISHED),
    ],
)
def test_what_a_peer_did_becomes_evidence(report: Gave | Lied, kind: int) -> None:
    evidence = evidence_of(report, "node-ffff", 1_700_000_000.0)
    assert evidence is not None
    assert (evidence.kind, evidence.node_id) == (kind, HOLDER.node_id)
    assert evidence.evidence_id.startswith("node-ffff/")
    if isinstance(report, Gave):
        assert (evidence.delay_s, evidence.transfer_bytes) == (2.5, 1000)
    assert DIGEST[:12] in evidence.detail


def test_the_trainer_is_no_node_and_gets_no_evidence() -> None:
    assert evidence_of(Gave(ArtifactHolder(name="trainer"), DIGEST, 1, 1.0), "node-ffff", 0.0) is None
