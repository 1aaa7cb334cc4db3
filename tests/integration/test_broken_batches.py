"""Aim: a batch that broke leaves nothing behind, also where a forward pass changes the model itself.

Method: two ranks as processes, one of which ends within a batch that the other has computed.
"""

from pathlib import Path

import pytest
from counting_member import DIES_AT, RANKS
from member_processes import printed_by_ranks

DEADLINE_S = 60
SCRIPT = Path(__file__).parent / "counting_member.py"


@pytest.mark.parametrize(
    ("sync", "committed"),
    [
        ("", DIES_AT - 1),
        ("schedule=cut:1024,topology=direct", DIES_AT - 1),
        ("period=4", 4),
        ("period=2,delay=1", 4),  # of its four rounds the last two are undone
    ],
)
def test_buffers_count_the_committed_batches(sync: str, committed: int, tmp_path: Path) -> None:
    said, _ = printed_by_ranks(SCRIPT, {"sync": sync}, RANKS, tmp_path, DEADLINE_S)
    assert said[0] == [{"steps": committed, "passes": committed}]
