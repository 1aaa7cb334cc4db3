"""Pages with figures say what the code says: docs/reference is made from it, belief.md computed again."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from peerloom.services.selector.belief.formula import Reputation, Weights, update
from peerloom.v1.selector_pb2 import EvidenceKind

DOCS = Path(__file__).parents[2] / "docs"


def test_the_reference_is_current() -> None:
    generate = [sys.executable, str(DOCS / "generate_reference.py"), "--check"]
    done = subprocess.run(generate, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_the_life_of_a_node_in_belief_md_is_what_the_rules_give() -> None:
    rows = re.findall(r"^\| ([A-Z_]+) \|(.*)\|$", (DOCS / "belief.md").read_text(), re.MULTILINE)
    known = set(EvidenceKind.keys()) - {"EVIDENCE_KIND_UNSPECIFIED"}
    assert {f"EVIDENCE_KIND_{kind}" for kind, _ in rows} == known
    reputation = Reputation()
    for kind, cells in rows:
        delay_s, online_s, open_online_s, *shown = map(float, cells.split("|"))
        reputation, terms = update(
            reputation,
            EvidenceKind.Value(f"EVIDENCE_KIND_{kind}"),
            Weights(),
            delay_s=delay_s,
            online_s=online_s,
            open_online_s=open_online_s,
        )
        found = [terms.score_new, terms.time_score, terms.score_reduce, reputation.belief]
        assert found == pytest.approx(shown, abs=2e-6), f"after {kind}"
